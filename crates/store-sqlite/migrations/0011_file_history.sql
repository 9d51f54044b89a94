-- Which operation changed which file, to be found by the file: a row for each path that an end names, and one
-- with an empty path where files changed that it does not name. What is told of a change are the bytes that
-- are proven; this only finds them.
CREATE TABLE audit_files (
    operation INTEGER NOT NULL,
    end_seq   INTEGER NOT NULL,
    sandbox   BLOB    NOT NULL,
    path      TEXT    NOT NULL,
    PRIMARY KEY (operation, path)
) STRICT, WITHOUT ROWID;

CREATE INDEX audit_files_path ON audit_files (sandbox, path, end_seq);

-- The ends of before. A row that was tampered with may be no JSON; that is for the verification to say.
INSERT OR IGNORE INTO audit_files (operation, end_seq, sandbox, path)
SELECT ended.seq, ended.end_seq, ended.sandbox,
       iif(octet_length(file.value ->> 'path') > 1020, '', file.value ->> 'path')
FROM (
    SELECT o.seq, o.end_seq, o.sandbox,
           iif(json_valid(CAST(e.facts AS TEXT)), CAST(e.facts AS TEXT), '{}') AS facts
    FROM audit_operations AS o JOIN audit_rows AS e ON e.seq = o.end_seq WHERE o.sandbox IS NOT NULL
) AS ended, json_each(ended.facts, '$.facts.end.files') AS file
WHERE file.value ->> 'path' IS NOT NULL;

INSERT OR IGNORE INTO audit_files (operation, end_seq, sandbox, path)
SELECT seq, end_seq, sandbox, ''
FROM (
    SELECT o.seq, o.end_seq, o.sandbox,
           iif(json_valid(CAST(e.facts AS TEXT)), CAST(e.facts AS TEXT), '{}') AS facts
    FROM audit_operations AS o JOIN audit_rows AS e ON e.seq = o.end_seq WHERE o.sandbox IS NOT NULL
)
WHERE coalesce(facts ->> '$.facts.end.files_count', 0) > coalesce(json_array_length(facts, '$.facts.end.files'), 0);
