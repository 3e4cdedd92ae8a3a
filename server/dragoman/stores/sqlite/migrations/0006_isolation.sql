-- Who made a task and who sent a message, which need not be the owner's principal where tasks are shared. Empty in a
-- message for the owner's principal, and in tasks that are older than this.
ALTER TABLE tasks ADD COLUMN principal TEXT NOT NULL DEFAULT '';
ALTER TABLE messages ADD COLUMN sender TEXT NOT NULL DEFAULT '';
UPDATE tasks SET principal = (SELECT o.principal FROM owners o WHERE o.owner = tasks.owner) WHERE ready;

DROP INDEX tasks_waiting;
CREATE INDEX tasks_waiting ON tasks (principal, agent, created) WHERE ready;

-- The owner of the key's task, where that is not the key's own.
ALTER TABLE idempotency ADD COLUMN host INTEGER;

CREATE INDEX idempotency_by_host ON idempotency (host, task) WHERE host IS NOT NULL;
