-- Preview tokens that are valid, by their ids. Revoking one removes its row; an expired one goes with the next that is made.
CREATE TABLE preview_tokens (
    id         BYTEA  PRIMARY KEY,
    sandbox    BIGINT NOT NULL REFERENCES sandboxes (seq) ON DELETE CASCADE,
    port       BIGINT,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX preview_tokens_sandbox ON preview_tokens (sandbox, created_at);
CREATE INDEX preview_tokens_expired ON preview_tokens (expires_at);
