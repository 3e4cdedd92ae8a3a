-- Agents that workers dial in with: whose they are, and the registration of the worker that came last.
CREATE TABLE roster (
    agent TEXT NOT NULL PRIMARY KEY,
    principal TEXT NOT NULL,
    registration BLOB NOT NULL,
    since INTEGER NOT NULL,
    seen INTEGER NOT NULL
) WITHOUT ROWID;
