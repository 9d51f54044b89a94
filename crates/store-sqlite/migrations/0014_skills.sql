-- Skills of owners, and which of them a sandbox has.
CREATE TABLE skills (
    id            BLOB    PRIMARY KEY NOT NULL,
    owner         TEXT    NOT NULL,
    owner_name    TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    description   TEXT    NOT NULL,
    source        TEXT    NOT NULL,
    metadata      TEXT    NOT NULL,
    digest        BLOB    NOT NULL,
    package_bytes INTEGER NOT NULL,
    files         INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX skills_name ON skills (owner, name);
CREATE INDEX skills_digest ON skills (digest);

ALTER TABLE sandboxes ADD COLUMN skills TEXT NOT NULL DEFAULT '[]';
