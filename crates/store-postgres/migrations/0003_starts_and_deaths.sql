-- Whether what a sandbox's image starts is still to be done, and how its container died. Until now only the sentence of the reason said so.
ALTER TABLE sandboxes ADD COLUMN start_due BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE sandboxes ADD COLUMN death TEXT COLLATE "C";

UPDATE sandboxes SET start_due = TRUE WHERE status = 'ready' AND status_reason = 'starting';

UPDATE sandboxes SET death = CASE
    WHEN status_reason = 'out of memory' THEN '{"kind":"out_of_memory","signal":9}'
    WHEN status_reason = 'killed by SIGKILL (137)' THEN '{"kind":"signal","signal":9}'
    WHEN status_reason = 'segmentation fault (139)' THEN '{"kind":"signal","signal":11}'
    WHEN status_reason = 'terminated by SIGTERM (143)' THEN '{"kind":"signal","signal":15}'
    WHEN status_reason = 'gone without a trace' THEN '{"kind":"lost"}'
    WHEN status_reason ~ '^killed by signal [0-9]{1,9}$' THEN '{"kind":"signal","signal":' || substr(status_reason, 18) || '}'
    WHEN status_reason ~ '^exited with status [0-9]{1,9}$' THEN '{"kind":"exited","exit_status":' || substr(status_reason, 20) || '}'
END WHERE status = 'dead';
