-- Agents upstream that were added while a server ran, and what was said of each, with credentials.
CREATE TABLE upstreams (
    agent TEXT NOT NULL PRIMARY KEY,
    entry BLOB NOT NULL,
    since INTEGER NOT NULL
) WITHOUT ROWID;
