-- since 8
-- Which task works for which: both have the same owner.
CREATE TABLE parents (
    owner  bigint NOT NULL,
    task   bytea  NOT NULL,
    parent bytea  NOT NULL,
    PRIMARY KEY (owner, task)
);

CREATE INDEX parents_by_parent ON parents (owner, parent);

-- What the tasks that work for a task have used, and those that work for them. `cost` is in billionths.
CREATE TABLE delegated (
    owner  bigint NOT NULL,
    task   bytea  NOT NULL,
    tokens bigint NOT NULL,
    cost   bigint NOT NULL,
    PRIMARY KEY (owner, task)
);
