-- Snapshots of sandboxes' volumes. A row is written before its snapshot is made, and is ready once that is there.
CREATE TABLE snapshots (
    seq         INTEGER PRIMARY KEY,
    id          BLOB    NOT NULL UNIQUE,
    sandbox     INTEGER NOT NULL REFERENCES sandboxes (seq) ON DELETE CASCADE,
    kind        TEXT    NOT NULL,
    label       TEXT,
    made_before TEXT,
    created_at  INTEGER NOT NULL,
    size        INTEGER NOT NULL,
    ready       INTEGER NOT NULL
) STRICT;

CREATE INDEX snapshots_sandbox ON snapshots (sandbox, created_at);
CREATE INDEX snapshots_thinned ON snapshots (created_at) WHERE kind <> 'manual' AND label IS NULL;

-- Before what the server makes a snapshot of a sandbox by itself.
ALTER TABLE sandboxes ADD COLUMN auto_snapshot TEXT NOT NULL DEFAULT 'off';
