-- Answers to requests that may be repeated are sealed from now on. What lies here in clear is erased: those
-- requests stay done, and a repetition is told that the answer is not kept.
PRAGMA secure_delete = ON;

UPDATE idempotent SET body = NULL WHERE body IS NOT NULL;
