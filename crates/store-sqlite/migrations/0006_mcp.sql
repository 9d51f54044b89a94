-- Sessions of MCP clients over HTTP.
CREATE TABLE mcp_sessions (
    id         TEXT    PRIMARY KEY,
    holder     TEXT    NOT NULL,
    owner      TEXT    NOT NULL,
    owner_name TEXT    NOT NULL,
    thread     TEXT,
    params     TEXT    NOT NULL,
    active_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX mcp_sessions_holder ON mcp_sessions (holder);
