-- since 12
-- What lists show of a task besides its state (core/task/projection.py): the beginning of its first message, and of the
-- error or question in its status. Tasks that are older than this have neither.
ALTER TABLE tasks ADD COLUMN summary text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN status_text text COLLATE "C" NOT NULL DEFAULT '';

-- Tasks of all owners in the order of their last change, together with tasks_resting.
CREATE INDEX tasks_active ON tasks (agent, state, updated, owner, task) WHERE state <= 2;
