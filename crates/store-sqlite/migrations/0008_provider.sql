-- Each sandbox names the provider that runs it. Until now there was one.
ALTER TABLE sandboxes ADD COLUMN provider TEXT NOT NULL DEFAULT 'native';
