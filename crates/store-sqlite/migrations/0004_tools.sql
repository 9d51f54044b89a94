-- Conversations, their tool sessions, and what those exported.

CREATE TABLE tool_threads (
    seq        INTEGER PRIMARY KEY,
    owner      TEXT    NOT NULL,
    thread     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    active_at  INTEGER NOT NULL,
    UNIQUE (owner, thread)
) STRICT;

CREATE TABLE tool_sessions (
    id           INTEGER PRIMARY KEY,
    thread       INTEGER NOT NULL REFERENCES tool_threads (seq) ON DELETE CASCADE,
    owner_name   TEXT    NOT NULL,
    sandbox      BLOB    NOT NULL,
    kernel       BLOB,
    language     TEXT    NOT NULL,
    dependencies TEXT    NOT NULL,
    status       TEXT    NOT NULL,
    reason       TEXT,
    created_at   INTEGER NOT NULL,
    active_at    INTEGER NOT NULL
) STRICT;

CREATE INDEX tool_sessions_thread ON tool_sessions (thread);

CREATE TABLE tool_exports (
    session     INTEGER NOT NULL REFERENCES tool_sessions (id) ON DELETE CASCADE,
    path        TEXT    NOT NULL,
    folder      INTEGER NOT NULL,
    size        INTEGER,
    exported_at INTEGER NOT NULL,
    PRIMARY KEY (session, path)
) STRICT, WITHOUT ROWID;
