-- Sessions that end by themselves, attempts, idempotency keys, and the state of conversations.
ALTER TABLE sessions ADD COLUMN expires INTEGER NOT NULL DEFAULT 0;

-- `attempt` counts how often the present turn was begun; messages up to `answered` were dealt with by turns that ended.
ALTER TABLE tasks ADD COLUMN attempt INTEGER NOT NULL DEFAULT 1;
ALTER TABLE tasks ADD COLUMN answered INTEGER NOT NULL DEFAULT 0;

-- `task` is null once the task is erased; `reply` is the Message that came instead of a task; `first` is the last
-- sequence before the message, so 0 for one that made its task.
CREATE TABLE idempotency (
    owner   INTEGER NOT NULL,
    agent   TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    digest  BLOB    NOT NULL,
    task    BLOB,
    reply   BLOB,
    first   INTEGER NOT NULL,
    created INTEGER NOT NULL,
    PRIMARY KEY (owner, agent, key)
) WITHOUT ROWID;

CREATE INDEX idempotency_by_task ON idempotency (owner, task);
CREATE INDEX idempotency_by_age ON idempotency (created);

CREATE TABLE context_state (
    owner   INTEGER NOT NULL,
    agent   TEXT    NOT NULL,
    context TEXT    NOT NULL,
    version INTEGER NOT NULL,
    data    BLOB    NOT NULL,
    PRIMARY KEY (owner, agent, context)
) WITHOUT ROWID;
