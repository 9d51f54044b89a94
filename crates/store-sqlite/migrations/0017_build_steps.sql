-- What steps of templates made, by their keys: images that have no name.
CREATE TABLE build_steps (
    key          BLOB    PRIMARY KEY NOT NULL,
    image        BLOB    NOT NULL UNIQUE,
    provider     TEXT    NOT NULL,
    size_bytes   INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
