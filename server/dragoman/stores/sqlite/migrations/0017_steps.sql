-- since 17
-- When the turn of a task continues that sleeps, in milliseconds since the epoch.
ALTER TABLE tasks ADD COLUMN wakes INTEGER NOT NULL DEFAULT 0;

CREATE INDEX tasks_asleep ON tasks (wakes) WHERE wakes > 0;

-- Durable steps of turns (core/task/steps.py). `turn` is 0 for the current turn; `result` is a serialized Part.
CREATE TABLE steps (
    owner    INTEGER NOT NULL,
    task     BLOB    NOT NULL,
    turn     INTEGER NOT NULL,
    name     TEXT    NOT NULL,
    number   INTEGER NOT NULL,
    position INTEGER NOT NULL,
    state    INTEGER NOT NULL,
    attempt  INTEGER NOT NULL,
    started  INTEGER NOT NULL,
    ended    INTEGER NOT NULL,
    wakes    INTEGER NOT NULL,
    size     INTEGER NOT NULL,
    result   BLOB    NOT NULL,
    error    TEXT    NOT NULL,
    PRIMARY KEY (owner, task, turn, name, number)
) WITHOUT ROWID;
