-- Who made a task and who sent a message, which need not be the owner's principal where tasks are shared. Empty in a
-- message for the owner's principal, and in tasks that are older than this.
ALTER TABLE tasks ADD COLUMN principal TEXT NOT NULL DEFAULT '';
ALTER TABLE messages ADD COLUMN sender TEXT NOT NULL DEFAULT '';
UPDATE tasks SET principal = (SELECT o.principal FROM owners o WHERE o.owner = tasks.owner) WHERE ready;

DROP INDEX tasks_waiting;
CREATE INDEX tasks_waiting ON tasks (principal, agent, created) WHERE ready;

-- Conversations that the server named, so that others may join them: the owner is the one that began it.
CREATE TABLE conversations (context TEXT PRIMARY KEY, owner INTEGER NOT NULL) WITHOUT ROWID;

-- Who joined: `owner` takes part in a conversation whose tasks are kept under `host`.
CREATE TABLE participants (
    owner   INTEGER NOT NULL,
    host    INTEGER NOT NULL,
    context TEXT    NOT NULL,
    PRIMARY KEY (owner, host, context)
) WITHOUT ROWID;

CREATE INDEX participants_by_context ON participants (host, context);

-- The tasks of such conversations: where to look for one that is not kept under who asks.
CREATE TABLE open_tasks (task BLOB PRIMARY KEY, owner INTEGER NOT NULL) WITHOUT ROWID;

-- The owner of the key's task, where that is not the key's own.
ALTER TABLE idempotency ADD COLUMN host INTEGER;

CREATE INDEX idempotency_by_host ON idempotency (host, task) WHERE host IS NOT NULL;
