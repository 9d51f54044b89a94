-- Whether what a sandbox's image starts is still to be done, and how its container died. Until now only the sentence of the reason said so.
ALTER TABLE sandboxes ADD COLUMN start_due INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN death TEXT;

UPDATE sandboxes SET start_due = 1 WHERE status = 'ready' AND status_reason = 'starting';

UPDATE sandboxes SET death = CASE
    WHEN status_reason = 'out of memory' THEN '{"kind":"out_of_memory","signal":9}'
    WHEN status_reason = 'killed by SIGKILL (137)' THEN '{"kind":"signal","signal":9}'
    WHEN status_reason = 'segmentation fault (139)' THEN '{"kind":"signal","signal":11}'
    WHEN status_reason = 'terminated by SIGTERM (143)' THEN '{"kind":"signal","signal":15}'
    WHEN status_reason = 'gone without a trace' THEN '{"kind":"lost"}'
    WHEN status_reason GLOB 'killed by signal [0-9]*' AND status_reason NOT GLOB 'killed by signal *[^0-9]*' THEN '{"kind":"signal","signal":' || CAST(substr(status_reason, 18) AS INTEGER) || '}'
    WHEN status_reason GLOB 'exited with status [0-9]*' AND status_reason NOT GLOB 'exited with status *[^0-9]*' THEN '{"kind":"exited","exit_status":' || CAST(substr(status_reason, 20) AS INTEGER) || '}'
END WHERE status = 'dead';
