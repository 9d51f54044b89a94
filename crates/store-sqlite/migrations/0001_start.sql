-- Ids are the sixteen bytes of a UUID, times are milliseconds since 1970. A migration that was released
-- never changes; what comes later is a new file.

CREATE TABLE sandboxes (
    seq                  INTEGER PRIMARY KEY,
    id                   BLOB    NOT NULL UNIQUE,
    owner                TEXT    NOT NULL,
    status               TEXT    NOT NULL,
    image                TEXT    NOT NULL,
    session_key          TEXT,
    created_at           INTEGER NOT NULL,
    last_activity_at     INTEGER NOT NULL,
    exec_count           INTEGER NOT NULL,
    exec_total_ms        INTEGER NOT NULL,
    bytes_uploaded       INTEGER NOT NULL,
    bytes_downloaded     INTEGER NOT NULL,
    activity_count       INTEGER NOT NULL DEFAULT 0,
    revision             INTEGER NOT NULL,
    container            BLOB,
    volume               BLOB    NOT NULL,
    stopped_at           INTEGER,
    destroyed_at         INTEGER,
    idle_timeout_seconds INTEGER NOT NULL,
    network_enabled      INTEGER NOT NULL,
    search               TEXT    NOT NULL,
    owner_name           TEXT    NOT NULL,
    status_reason        TEXT,
    limits               TEXT    NOT NULL,
    labels               TEXT    NOT NULL,
    profile              TEXT    NOT NULL,
    environment          BLOB    NOT NULL
) STRICT;

CREATE UNIQUE INDEX sandboxes_session ON sandboxes (owner, session_key, image)
    WHERE session_key IS NOT NULL AND status <> 'destroyed';
CREATE UNIQUE INDEX sandboxes_container ON sandboxes (container) WHERE container IS NOT NULL;
CREATE UNIQUE INDEX sandboxes_volume ON sandboxes (volume) WHERE status <> 'destroyed';
CREATE INDEX sandboxes_status ON sandboxes (status, owner, image);
CREATE INDEX sandboxes_owner ON sandboxes (owner, created_at, id, status);
CREATE INDEX sandboxes_created ON sandboxes (created_at, id, status);

-- The labels again, one by one, to be found by.
CREATE TABLE labels (
    sandbox INTEGER NOT NULL REFERENCES sandboxes (seq) ON DELETE CASCADE,
    name    TEXT    NOT NULL,
    value   TEXT    NOT NULL,
    PRIMARY KEY (sandbox, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX labels_value ON labels (name, value, sandbox);

-- Numbered within the sandbox, so that the one too many is known without counting.
CREATE TABLE activities (
    sandbox     INTEGER NOT NULL REFERENCES sandboxes (seq) ON DELETE CASCADE,
    number      INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    detail      TEXT    NOT NULL,
    exit_code   INTEGER,
    duration_ms INTEGER,
    bytes       INTEGER,
    PRIMARY KEY (sandbox, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE keys (
    seq          INTEGER PRIMARY KEY,
    id           BLOB    NOT NULL UNIQUE,
    hash         BLOB    NOT NULL UNIQUE,
    name         TEXT    NOT NULL,
    owner        TEXT    NOT NULL,
    owner_name   TEXT    NOT NULL,
    scope        TEXT    NOT NULL,
    tier         TEXT    NOT NULL,
    prefix       TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    revoked_at   INTEGER,
    last_used_at INTEGER
) STRICT;

CREATE INDEX keys_owner ON keys (owner);

CREATE TABLE idempotent (
    owner        TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    request_hash BLOB    NOT NULL,
    attempt      BLOB    NOT NULL,
    begun_at     INTEGER NOT NULL,
    status       INTEGER,
    body         BLOB,
    PRIMARY KEY (owner, key)
) STRICT;

CREATE INDEX idempotent_begun ON idempotent (begun_at);

CREATE TABLE settings (
    name  TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
