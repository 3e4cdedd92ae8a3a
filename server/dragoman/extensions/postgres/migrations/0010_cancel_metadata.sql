-- since 9
-- The metadata of the cancel request: a serialized Struct, empty if it has none.
ALTER TABLE cancels ADD COLUMN metadata bytea NOT NULL DEFAULT '';
