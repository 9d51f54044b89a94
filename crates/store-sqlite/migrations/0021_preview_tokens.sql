-- Preview tokens that are valid, by their ids. Revoking one removes its row; an expired one goes with the next that is made.
CREATE TABLE preview_tokens (
    id         BLOB    PRIMARY KEY NOT NULL,
    sandbox    INTEGER NOT NULL REFERENCES sandboxes (seq) ON DELETE CASCADE,
    port       INTEGER,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX preview_tokens_sandbox ON preview_tokens (sandbox, created_at);
CREATE INDEX preview_tokens_expired ON preview_tokens (expires_at);
