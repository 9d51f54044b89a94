-- Whether the reconciler paused a sandbox because it was idle. Until now only the sentence of the reason said so.
ALTER TABLE sandboxes ADD COLUMN idle_pause INTEGER NOT NULL DEFAULT 0;

UPDATE sandboxes SET idle_pause = 1 WHERE status = 'paused' AND status_reason LIKE 'idle for %';
