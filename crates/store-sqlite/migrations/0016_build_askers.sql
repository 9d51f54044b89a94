-- The owner of the key that asked for a build. Nothing is known of those from before.
ALTER TABLE image_builds ADD COLUMN asked_by TEXT NOT NULL DEFAULT '';
