-- since 11
-- When the turn of a task continues that sleeps, in milliseconds since the epoch.
ALTER TABLE tasks ADD COLUMN wakes bigint NOT NULL DEFAULT 0;

CREATE INDEX tasks_asleep ON tasks (wakes) WHERE wakes > 0;

-- Durable steps of turns (core/task/steps.py). `turn` is 0 for the current turn; `result` is a serialized Part.
CREATE TABLE steps (
    owner    bigint  NOT NULL,
    task     bytea   NOT NULL,
    turn     bigint  NOT NULL,
    name     text COLLATE "C" NOT NULL,
    number   bigint  NOT NULL,
    position bigint  NOT NULL,
    state    bigint  NOT NULL,
    attempt  bigint  NOT NULL,
    started  bigint  NOT NULL,
    ended    bigint  NOT NULL,
    wakes    bigint  NOT NULL,
    size     bigint  NOT NULL,
    result   bytea   NOT NULL,
    error    text    NOT NULL,
    PRIMARY KEY (owner, task, turn, name, number)
);
