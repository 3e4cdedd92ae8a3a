-- since 18
-- What lists show of a task besides its state (core/task/projection.py): the beginning of its first message, and of the
-- error or question in its status. Tasks that are older than this have neither.
ALTER TABLE tasks ADD COLUMN summary TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN status_text TEXT NOT NULL DEFAULT '';

-- Tasks of all owners in the order of their last change, together with tasks_resting.
CREATE INDEX tasks_active ON tasks (agent, state, updated) WHERE state <= 2 AND visible;

-- Tasks of all owners in the order of their creation: a key begins with its time. Their texts are in the index, because
-- tasks of different owners are far apart in the table.
CREATE INDEX tasks_by_key ON tasks (task, agent, summary, status_text) WHERE visible;
