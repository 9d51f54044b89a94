-- What a sandbox may reach.
ALTER TABLE sandboxes ADD COLUMN egress TEXT NOT NULL DEFAULT '{"mode":"none"}';

-- Decisions are found by the bytes that are proven: there are no columns beside them that could differ.
CREATE INDEX audit_egress_sandbox ON audit_rows
    (json_extract(CAST(facts AS TEXT), '$.facts.egress.sandbox')) WHERE part = 'egress';
CREATE INDEX audit_egress_host ON audit_rows
    (json_extract(CAST(facts AS TEXT), '$.facts.egress.sandbox'),
     lower(json_extract(CAST(facts AS TEXT), '$.facts.egress.host'))) WHERE part = 'egress';
CREATE INDEX audit_egress_refused ON audit_rows
    (json_extract(CAST(facts AS TEXT), '$.facts.egress.sandbox'))
    WHERE part = 'egress' AND json_extract(CAST(facts AS TEXT), '$.facts.egress.allowed') = 0;
CREATE INDEX audit_egress_operation ON audit_rows (operation) WHERE part = 'egress';
