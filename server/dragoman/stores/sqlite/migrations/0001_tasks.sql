-- Every table is keyed by owner first: (scope, principal) as one number, so that rows stay small.

CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE owners (
    owner     INTEGER PRIMARY KEY,
    scope     TEXT NOT NULL,
    principal TEXT NOT NULL,
    UNIQUE (scope, principal)
);

-- One row for each process that ever ran agents on this store. Numbers are never used twice.
CREATE TABLE sessions (session INTEGER PRIMARY KEY AUTOINCREMENT, started INTEGER NOT NULL);

CREATE TABLE tasks (
    owner          INTEGER NOT NULL REFERENCES owners,
    task           BLOB    NOT NULL,
    agent          TEXT    NOT NULL,
    id             TEXT    NOT NULL,
    context        TEXT    NOT NULL,
    created        INTEGER NOT NULL,
    updated        INTEGER NOT NULL,
    state          INTEGER NOT NULL,
    last           INTEGER NOT NULL,
    messages       INTEGER NOT NULL,
    status_message INTEGER NOT NULL,
    asked          INTEGER NOT NULL,
    inbox          INTEGER NOT NULL,
    taken          INTEGER NOT NULL,
    session        INTEGER NOT NULL,
    token          INTEGER NOT NULL,
    ready          INTEGER NOT NULL,
    visible        INTEGER NOT NULL,
    metadata       BLOB    NOT NULL,
    memory         BLOB    NOT NULL DEFAULT x'',
    PRIMARY KEY (owner, task)
) WITHOUT ROWID;

CREATE INDEX tasks_newest ON tasks (owner, agent, updated, task) WHERE visible;
CREATE INDEX tasks_by_state ON tasks (owner, agent, state, updated, task) WHERE visible;
CREATE INDEX tasks_by_context ON tasks (owner, context, agent, updated, task) WHERE visible;
CREATE INDEX tasks_waiting ON tasks (agent, created) WHERE ready;
CREATE INDEX tasks_claimed ON tasks (session) WHERE session > 0;

-- One row for each append: so many events from `first` on, each with its length before it.
CREATE TABLE log (
    owner INTEGER NOT NULL,
    task  BLOB    NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    ends  INTEGER NOT NULL,
    data  BLOB    NOT NULL,
    PRIMARY KEY (owner, task, first)
) WITHOUT ROWID;

-- `data` is framed as field 5 of Task, so that a history is a join of rows.
CREATE TABLE messages (
    owner    INTEGER NOT NULL,
    task     BLOB    NOT NULL,
    number   INTEGER NOT NULL,
    role     INTEGER NOT NULL,
    data     BLOB    NOT NULL,
    envelope BLOB    NOT NULL,
    PRIMARY KEY (owner, task, number)
) WITHOUT ROWID;

-- `head` is what stands before the parts; `position` is the sequence at which the artifact first came.
CREATE TABLE artifacts (
    owner    INTEGER NOT NULL,
    task     BLOB    NOT NULL,
    artifact TEXT    NOT NULL,
    position INTEGER NOT NULL,
    head     BLOB    NOT NULL,
    PRIMARY KEY (owner, task, artifact)
) WITHOUT ROWID;

CREATE TABLE chunks (
    owner    INTEGER NOT NULL,
    task     BLOB    NOT NULL,
    artifact TEXT    NOT NULL,
    sequence INTEGER NOT NULL,
    text     INTEGER NOT NULL,
    data     BLOB    NOT NULL,
    PRIMARY KEY (owner, task, artifact, sequence)
) WITHOUT ROWID;

-- Visible tasks by state: exact totals without a count.
CREATE TABLE totals (
    owner INTEGER NOT NULL,
    agent TEXT    NOT NULL,
    state INTEGER NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (owner, agent, state)
) WITHOUT ROWID;
