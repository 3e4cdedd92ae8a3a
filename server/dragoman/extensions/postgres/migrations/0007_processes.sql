-- Which process holds a session (processes.py), so that one of the same machine sees that it is gone; empty where that
-- cannot be said.
ALTER TABLE sessions ADD COLUMN process text NOT NULL DEFAULT '';
