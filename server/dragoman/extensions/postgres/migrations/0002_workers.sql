-- Agents that workers dial in with: whose they are, and the registration of the worker that came last.
CREATE TABLE roster (
    agent        text COLLATE "C" PRIMARY KEY,
    principal    text   NOT NULL,
    registration bytea  NOT NULL,
    since        bigint NOT NULL,
    seen         bigint NOT NULL
);
