-- Conversations of the agent. A checkpoint names its messages by their numbers, so that one that many checkpoints have is
-- stored once.

CREATE TABLE assistants (
    seq        INTEGER PRIMARY KEY,
    owner      TEXT    NOT NULL,
    id         BLOB    NOT NULL,
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (owner, id)
) STRICT;

CREATE TABLE assistant_versions (
    assistant   INTEGER NOT NULL REFERENCES assistants (seq) ON DELETE CASCADE,
    version     INTEGER NOT NULL,
    graph       TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    description TEXT,
    config      TEXT    NOT NULL,
    context     TEXT    NOT NULL,
    metadata    TEXT    NOT NULL,
    updated_at  INTEGER NOT NULL,
    PRIMARY KEY (assistant, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE conversations (
    seq        INTEGER PRIMARY KEY,
    owner      TEXT    NOT NULL,
    thread     TEXT    NOT NULL,
    metadata   TEXT    NOT NULL,
    status     TEXT    NOT NULL,
    head       BLOB,
    error      TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (owner, thread)
) STRICT;

CREATE TABLE conversation_messages (
    seq          INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL REFERENCES conversations (seq) ON DELETE CASCADE,
    message      TEXT    NOT NULL
) STRICT;

CREATE INDEX conversation_messages_of ON conversation_messages (conversation);

CREATE TABLE conversation_checkpoints (
    seq          INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL REFERENCES conversations (seq) ON DELETE CASCADE,
    id           BLOB    NOT NULL,
    parent       BLOB,
    run          BLOB,
    step         INTEGER NOT NULL,
    source       TEXT    NOT NULL,
    node         TEXT,
    next         TEXT,
    messages     TEXT    NOT NULL,
    state        TEXT    NOT NULL,
    interrupts   TEXT    NOT NULL,
    metadata     TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    UNIQUE (conversation, id)
) STRICT;

CREATE TABLE conversation_runs (
    seq          INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL REFERENCES conversations (seq) ON DELETE CASCADE,
    id           BLOB    NOT NULL,
    owner_name   TEXT    NOT NULL,
    assistant    BLOB    NOT NULL,
    key          BLOB,
    scope        TEXT    NOT NULL,
    tier         TEXT,
    metadata     TEXT    NOT NULL,
    input        TEXT    NOT NULL,
    kwargs       TEXT    NOT NULL,
    sealed       BLOB    NOT NULL,
    multitask    TEXT    NOT NULL,
    origin       BLOB,
    stateless    INTEGER NOT NULL,
    not_before   INTEGER NOT NULL,
    status       TEXT    NOT NULL,
    attempts     INTEGER NOT NULL,
    iterations   INTEGER NOT NULL,
    tokens       INTEGER NOT NULL,
    stopped      TEXT,
    failure      TEXT,
    started_at   INTEGER,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    UNIQUE (conversation, id)
) STRICT;

CREATE INDEX conversation_runs_unfinished ON conversation_runs (status) WHERE status IN ('pending', 'running');

CREATE TABLE conversation_items (
    seq        INTEGER PRIMARY KEY,
    owner      TEXT    NOT NULL,
    namespace  TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    value      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (owner, namespace, key)
) STRICT;
