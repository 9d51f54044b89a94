-- The skills that a snapshot's files have; of a snapshot of before, the time of their installation tells.
ALTER TABLE snapshots ADD COLUMN skills TEXT;
