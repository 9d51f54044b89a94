-- Volumes of owners, which outlive sandboxes, and which sandbox has which.
CREATE TABLE volumes (
    id         BLOB    PRIMARY KEY NOT NULL,
    owner      TEXT    NOT NULL,
    owner_name TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    tenant     TEXT,
    provider   TEXT    NOT NULL,
    disk_bytes INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    deleting   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX volumes_name ON volumes (owner, name);
CREATE UNIQUE INDEX volumes_tenant ON volumes (owner, tenant) WHERE tenant IS NOT NULL;

CREATE TABLE attachments (
    sandbox INTEGER NOT NULL REFERENCES sandboxes (seq) ON DELETE CASCADE,
    volume  BLOB    NOT NULL REFERENCES volumes (id),
    PRIMARY KEY (sandbox, volume)
) STRICT, WITHOUT ROWID;

CREATE INDEX attachments_volume ON attachments (volume);
