-- How long a sandbox may live, where its creator said so.
ALTER TABLE sandboxes ADD COLUMN max_lifetime_seconds INTEGER;

-- Few say so, and each of them is looked at.
CREATE INDEX sandboxes_lifetime ON sandboxes (created_at)
    WHERE max_lifetime_seconds IS NOT NULL AND status <> 'destroyed';
