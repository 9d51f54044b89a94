-- The kernels whose checkpoints belong to a snapshot, as JSON; null where there are none.
ALTER TABLE snapshots ADD COLUMN kernels TEXT;
