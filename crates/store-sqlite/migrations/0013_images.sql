-- Images, their tags, which sandbox uses which, and the builds that make them.
CREATE TABLE images (
    id           BLOB    PRIMARY KEY NOT NULL,
    name         TEXT    NOT NULL,
    digest       TEXT    NOT NULL,
    provider     TEXT    NOT NULL,
    approved     INTEGER NOT NULL,
    -- The rest of the record, as JSON.
    details      TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER,
    deleting     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE image_tags (
    name  TEXT    NOT NULL,
    tag   TEXT    NOT NULL,
    image BLOB    NOT NULL REFERENCES images (id) ON DELETE CASCADE,
    -- The order among the tags of one image.
    place INTEGER NOT NULL,
    PRIMARY KEY (name, tag)
) STRICT, WITHOUT ROWID;

CREATE INDEX image_tags_image ON image_tags (image);

CREATE TABLE image_uses (
    sandbox INTEGER PRIMARY KEY NOT NULL REFERENCES sandboxes (seq) ON DELETE CASCADE,
    image   BLOB    NOT NULL REFERENCES images (id)
) STRICT;

CREATE INDEX image_uses_image ON image_uses (image);

CREATE TABLE image_builds (
    seq        INTEGER PRIMARY KEY NOT NULL,
    id         BLOB    NOT NULL UNIQUE,
    image      BLOB    NOT NULL,
    name       TEXT    NOT NULL,
    tag        TEXT    NOT NULL,
    origin     TEXT    NOT NULL,
    source     TEXT    NOT NULL,
    owner      TEXT    NOT NULL,
    sandbox    BLOB    NOT NULL,
    volume     TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    error      TEXT,
    created_at INTEGER NOT NULL,
    ended_at   INTEGER
) STRICT;

CREATE INDEX image_builds_running ON image_builds (seq) WHERE state = 'running';
