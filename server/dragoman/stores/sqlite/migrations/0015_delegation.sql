-- since 14
-- Which task works for which: both have the same owner.
CREATE TABLE parents (
    owner  INTEGER NOT NULL,
    task   BLOB    NOT NULL,
    parent BLOB    NOT NULL,
    PRIMARY KEY (owner, task)
) WITHOUT ROWID;

CREATE INDEX parents_by_parent ON parents (owner, parent);

-- What the tasks that work for a task have used, and those that work for them. `cost` is in billionths.
CREATE TABLE delegated (
    owner  INTEGER NOT NULL,
    task   BLOB    NOT NULL,
    tokens INTEGER NOT NULL,
    cost   INTEGER NOT NULL,
    PRIMARY KEY (owner, task)
) WITHOUT ROWID;
