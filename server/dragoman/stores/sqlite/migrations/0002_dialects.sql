-- In which dialect a task was made, and whether its id is one that the client chose (A2A 0.1).
ALTER TABLE tasks ADD COLUMN dialect TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN alias INTEGER NOT NULL DEFAULT 0;

CREATE UNIQUE INDEX tasks_by_alias ON tasks (owner, agent, id) WHERE alias;
