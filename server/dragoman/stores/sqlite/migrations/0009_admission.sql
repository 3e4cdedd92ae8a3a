-- What a user's message counts for as long as nobody has taken it up. Messages from before this weigh nothing.
ALTER TABLE messages ADD COLUMN size INTEGER NOT NULL DEFAULT 0;

CREATE INDEX owners_by_principal ON owners (principal);
