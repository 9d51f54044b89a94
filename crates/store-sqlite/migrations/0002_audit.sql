-- The audit trail. A row's bytes are what is proven; the columns beside them are for finding. The outputs
-- come last, so that what reads the facts does not read them.
CREATE TABLE audit_rows (
    seq       INTEGER PRIMARY KEY,
    part      TEXT    NOT NULL,
    operation BLOB,
    at        INTEGER NOT NULL,
    mac       BLOB    NOT NULL,
    facts     BLOB    NOT NULL,
    output    BLOB    NOT NULL
) STRICT;

CREATE INDEX audit_marks ON audit_rows (part) WHERE part IN ('note', 'checkpoint');

-- A beginning joined with its end, under the number of its beginning. Every index ends with that number by
-- itself, so each gives the newest first. `high` is the latest time so far: it follows the numbers even
-- when the clock is set back, so that times can be turned into numbers.
CREATE TABLE audit_operations (
    seq         INTEGER PRIMARY KEY,
    operation   BLOB    NOT NULL UNIQUE,
    at          INTEGER NOT NULL,
    high        INTEGER NOT NULL,
    owner       TEXT    NOT NULL,
    key         BLOB,
    kind        TEXT    NOT NULL,
    sandbox     BLOB,
    end_seq     INTEGER,
    outcome     TEXT,
    exit_code   INTEGER,
    duration_us INTEGER,
    search      TEXT    NOT NULL
) STRICT;

CREATE INDEX audit_high ON audit_operations (high);
CREATE INDEX audit_late ON audit_operations (at) WHERE at < high;
CREATE INDEX audit_owner ON audit_operations (owner);
CREATE INDEX audit_kind ON audit_operations (kind);
CREATE INDEX audit_owner_kind ON audit_operations (owner, kind);
CREATE INDEX audit_key ON audit_operations (key) WHERE key IS NOT NULL;
CREATE INDEX audit_sandbox ON audit_operations (sandbox) WHERE sandbox IS NOT NULL;
CREATE INDEX audit_open ON audit_operations (seq) WHERE end_seq IS NULL;
CREATE INDEX audit_exit ON audit_operations (exit_code) WHERE exit_code IS NOT NULL;
CREATE INDEX audit_owner_exit ON audit_operations (owner, exit_code) WHERE exit_code IS NOT NULL;
CREATE INDEX audit_outcome ON audit_operations (outcome) WHERE outcome <> 'ok';
CREATE INDEX audit_owner_outcome ON audit_operations (owner, outcome) WHERE outcome <> 'ok';

-- Which three letters occur in which detail. Filled a little later than the rest, many rows at once.
CREATE VIRTUAL TABLE audit_text USING fts5 (
    letters, content = '', contentless_delete = 1, tokenize = 'trigram', detail = none
);

CREATE TABLE events (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    owner   TEXT    NOT NULL,
    sandbox BLOB,
    kind    TEXT    NOT NULL,
    reason  TEXT,
    data    TEXT    NOT NULL
) STRICT;

CREATE INDEX events_owner ON events (owner);
CREATE INDEX events_sandbox ON events (sandbox);
