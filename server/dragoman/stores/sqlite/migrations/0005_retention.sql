-- One row for each erasure: how much went and when, and a digest of the ids. No id, no name, no content.
CREATE TABLE receipts (
    receipt   INTEGER PRIMARY KEY AUTOINCREMENT,
    reason    TEXT    NOT NULL,
    selection TEXT    NOT NULL,
    began     INTEGER NOT NULL,
    ended     INTEGER NOT NULL DEFAULT 0,
    tasks     INTEGER NOT NULL DEFAULT 0,
    events    INTEGER NOT NULL DEFAULT 0,
    messages  INTEGER NOT NULL DEFAULT 0,
    artifacts INTEGER NOT NULL DEFAULT 0,
    chunks    INTEGER NOT NULL DEFAULT 0,
    bytes     INTEGER NOT NULL DEFAULT 0,
    digest    TEXT    NOT NULL DEFAULT ''
);

-- Tasks that are gone already, and whose rows elsewhere go in bounded steps. Empty when no erasure is under way.
CREATE TABLE leaving (
    receipt INTEGER NOT NULL,
    id      TEXT    NOT NULL,
    owner   INTEGER NOT NULL,
    task    BLOB    NOT NULL,
    PRIMARY KEY (receipt, id, owner, task)
) WITHOUT ROWID;

-- Tasks that have ended or wait for their caller (states past SUBMITTED and WORKING), oldest status first.
CREATE INDEX tasks_resting ON tasks (agent, state, updated) WHERE state > 2;
