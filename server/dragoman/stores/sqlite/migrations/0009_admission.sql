-- What a user's message counts for as long as nobody has taken it up. Messages from before this weigh nothing.
ALTER TABLE messages ADD COLUMN size INTEGER NOT NULL DEFAULT 0;

-- Tasks that may come to wait for a worker are taken in turn, by principal.
UPDATE tasks SET principal = (SELECT o.principal FROM owners o WHERE o.owner = tasks.owner)
    WHERE principal = '' AND state NOT IN (3, 4, 5, 7);

CREATE INDEX owners_by_principal ON owners (principal);
