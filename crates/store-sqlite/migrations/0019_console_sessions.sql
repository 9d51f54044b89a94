-- Browsers that are signed in to the console, by the hash of what their cookie holds. Removing a key ends its sessions.
CREATE TABLE console_sessions (
    hash       BLOB    PRIMARY KEY NOT NULL,
    key        BLOB    NOT NULL REFERENCES keys (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX console_sessions_key ON console_sessions (key, created_at);
