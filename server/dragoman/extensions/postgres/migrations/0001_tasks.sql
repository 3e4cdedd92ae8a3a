-- Every table is keyed by owner first: (scope, principal) as one number, so that rows stay small. Texts compare by their
-- bytes (COLLATE "C"), as they do in the server and in SQLite. Times are milliseconds since the epoch.

CREATE TABLE owners (
    owner     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope     text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL,
    UNIQUE (scope, principal)
);

CREATE INDEX owners_by_principal ON owners (principal);

-- One row for each process that ever ran agents on this store. Numbers are never used twice.
CREATE TABLE sessions (
    session bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    started bigint NOT NULL,
    expires bigint NOT NULL
);

CREATE INDEX sessions_alive ON sessions (expires) WHERE expires > 0;

CREATE TABLE tasks (
    owner          bigint  NOT NULL,
    task           bytea   NOT NULL,
    agent          text COLLATE "C" NOT NULL,
    id             text COLLATE "C" NOT NULL,
    context        text COLLATE "C" NOT NULL,
    created        bigint  NOT NULL,
    updated        bigint  NOT NULL,
    state          integer NOT NULL,
    last           bigint  NOT NULL,
    messages       bigint  NOT NULL,
    status_message bigint  NOT NULL,
    asked          bigint  NOT NULL,
    inbox          bigint  NOT NULL,
    taken          bigint  NOT NULL,
    session        bigint  NOT NULL,
    token          bigint  NOT NULL,
    ready          boolean NOT NULL,
    visible        boolean NOT NULL,
    attempt        bigint  NOT NULL,
    answered       bigint  NOT NULL,
    pushed         boolean NOT NULL,
    dialect        text COLLATE "C" NOT NULL,
    alias          boolean NOT NULL,
    principal      text COLLATE "C" NOT NULL,
    metadata       bytea   NOT NULL,
    memory         bytea   NOT NULL,
    PRIMARY KEY (owner, task)
);

CREATE INDEX tasks_newest ON tasks (owner, agent, updated, task) WHERE visible;
CREATE INDEX tasks_by_state ON tasks (owner, agent, state, updated, task) WHERE visible;
CREATE INDEX tasks_by_context ON tasks (owner, context, agent, updated, task) WHERE visible;
CREATE INDEX tasks_waiting ON tasks (principal, agent, created, task) WHERE ready;
CREATE INDEX tasks_claimed ON tasks (session) WHERE session > 0;
CREATE INDEX tasks_hidden ON tasks (owner, context) WHERE NOT visible;
CREATE UNIQUE INDEX tasks_by_alias ON tasks (owner, agent, id) WHERE alias;
CREATE INDEX tasks_by_chosen_id ON tasks (id) WHERE alias;
CREATE INDEX tasks_by_key ON tasks (task);
-- Tasks that have ended or wait for their caller (states past SUBMITTED and WORKING), oldest status first.
CREATE INDEX tasks_resting ON tasks (agent, state, updated, owner, task) WHERE state > 2;

-- One row for each append: so many events from `first` on, each with its length before it. A task's key begins with the
-- time at which it was made, so ranges of keys are ranges of time: others than the default partition may be added.
CREATE TABLE log (
    owner bigint  NOT NULL,
    task  bytea   NOT NULL,
    first bigint  NOT NULL,
    count integer NOT NULL,
    ends  boolean NOT NULL,
    data  bytea   NOT NULL,
    PRIMARY KEY (owner, task, first)
) PARTITION BY RANGE (task);

CREATE TABLE log_rest PARTITION OF log DEFAULT;

-- `data` is framed as field 5 of Task, so that a history is a join of rows. `size` is what a user's message counts for as
-- long as nobody has taken it up; `sender` is empty for the owner's principal.
CREATE TABLE messages (
    owner    bigint  NOT NULL,
    task     bytea   NOT NULL,
    number   bigint  NOT NULL,
    role     integer NOT NULL,
    data     bytea   NOT NULL,
    envelope bytea   NOT NULL,
    sender   text COLLATE "C" NOT NULL,
    size     bigint  NOT NULL,
    PRIMARY KEY (owner, task, number)
);

-- `head` is what stands before the parts; `position` is the sequence at which the artifact first came; rows of it before
-- `folded` are as few as they get.
CREATE TABLE artifacts (
    owner    bigint NOT NULL,
    task     bytea  NOT NULL,
    artifact text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    head     bytea  NOT NULL,
    folded   bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (owner, task, artifact)
);

CREATE TABLE chunks (
    owner    bigint  NOT NULL,
    task     bytea   NOT NULL,
    artifact text COLLATE "C" NOT NULL,
    sequence bigint  NOT NULL,
    text     boolean NOT NULL,
    data     bytea   NOT NULL,
    PRIMARY KEY (owner, task, artifact, sequence)
);

-- Counters are kept in several rows, whose sum counts: each process writes those of one slot, and waits for nobody.

-- Visible tasks by state: exact totals without a count.
CREATE TABLE totals (
    owner bigint   NOT NULL,
    agent text COLLATE "C" NOT NULL,
    state integer  NOT NULL,
    slot  smallint NOT NULL,
    tasks bigint   NOT NULL,
    PRIMARY KEY (owner, agent, state, slot)
) WITH (fillfactor = 50);

-- What principals have: tasks that have not ended, and bytes of messages that nobody has taken up.
CREATE TABLE standings (
    principal text COLLATE "C" NOT NULL,
    agent     text COLLATE "C" NOT NULL,
    slot      smallint NOT NULL,
    live      bigint   NOT NULL,
    queued    bigint   NOT NULL,
    PRIMARY KEY (principal, agent, slot)
) WITH (fillfactor = 50);

-- `task` is null once the task is erased; `reply` is the Message that came instead of a task; `first` is the last sequence
-- before the message, so 0 for one that made its task; `host` is the task's owner where that is not the key's own.
CREATE TABLE idempotency (
    owner   bigint NOT NULL,
    agent   text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    digest  bytea  NOT NULL,
    task    bytea,
    reply   bytea,
    first   bigint NOT NULL,
    created bigint NOT NULL,
    host    bigint,
    PRIMARY KEY (owner, agent, key)
);

CREATE INDEX idempotency_by_task ON idempotency (owner, task) WHERE host IS NULL;
CREATE INDEX idempotency_by_host ON idempotency (host, task) WHERE host IS NOT NULL;

CREATE TABLE context_state (
    owner   bigint NOT NULL,
    agent   text COLLATE "C" NOT NULL,
    context text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    data    bytea  NOT NULL,
    PRIMARY KEY (owner, agent, context)
);

-- Folding (folding.py). What is here may speak of tasks that are no more: the next step then takes the row away.

-- Tasks whose artifacts grew, and by how many rows since they were last looked at.
CREATE TABLE grown (owner bigint NOT NULL, task bytea NOT NULL, rows bigint NOT NULL, PRIMARY KEY (owner, task));

-- Tasks that ended with more events than are kept for ever.
CREATE TABLE long (ended bigint NOT NULL, owner bigint NOT NULL, task bytea NOT NULL, PRIMARY KEY (ended, owner, task));

-- Large parts (blobs.py). `loose`: it may be that nothing refers to it; `touched` is when somebody last wrote it.
CREATE TABLE blobs (
    hash    bytea   PRIMARY KEY,
    content bytea   NOT NULL,
    touched bigint  NOT NULL,
    loose   boolean NOT NULL
);

ALTER TABLE blobs ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE INDEX blobs_loose ON blobs (touched) WHERE loose;

CREATE TABLE blob_uses (
    owner bigint NOT NULL,
    task  bytea  NOT NULL,
    hash  bytea  NOT NULL REFERENCES blobs,
    PRIMARY KEY (owner, task, hash)
);

CREATE INDEX blob_uses_by_hash ON blob_uses (hash);

-- One row for each erasure: how much went and when, and a digest of the ids. No id, no name, no content. `touched` is
-- when somebody last worked on it.
CREATE TABLE receipts (
    receipt   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reason    text   NOT NULL,
    selection text   NOT NULL,
    began     bigint NOT NULL,
    touched   bigint NOT NULL,
    ended     bigint NOT NULL DEFAULT 0,
    tasks     bigint NOT NULL DEFAULT 0,
    events    bigint NOT NULL DEFAULT 0,
    messages  bigint NOT NULL DEFAULT 0,
    artifacts bigint NOT NULL DEFAULT 0,
    chunks    bigint NOT NULL DEFAULT 0,
    bytes     bigint NOT NULL DEFAULT 0,
    digest    text   NOT NULL DEFAULT ''
);

CREATE INDEX receipts_unfinished ON receipts (receipt) WHERE digest = '';

-- Tasks that are gone already, and whose rows elsewhere go in bounded steps. Empty when no erasure is under way.
CREATE TABLE leaving (
    receipt bigint NOT NULL,
    id      text COLLATE "C" NOT NULL,
    owner   bigint NOT NULL,
    task    bytea  NOT NULL,
    PRIMARY KEY (receipt, id, owner, task)
);

-- API keys. Of a secret there is only the SHA-256; `former` is that of the secret before the last rotation, good until
-- `former_until`. 0 is never. `grants` is a JSON array.
CREATE TABLE api_keys (
    id           text COLLATE "C" PRIMARY KEY,
    name         text   NOT NULL,
    principal    text COLLATE "C" NOT NULL,
    grants       text   NOT NULL,
    digest       bytea  NOT NULL,
    created      bigint NOT NULL,
    expires      bigint NOT NULL,
    used         bigint NOT NULL,
    rotated      bigint NOT NULL,
    revoked      bigint NOT NULL,
    former       bytea  NOT NULL,
    former_until bigint NOT NULL
);

-- Push notifications (pushes.py): a cursor over the task's log for each configuration. `host` is whom the URL calls,
-- `state` is a dragoman.core.push.PushState; `due` is when there is something to do, 0 for never.
CREATE TABLE pushes (
    owner       bigint  NOT NULL,
    task        bytea   NOT NULL,
    id          text COLLATE "C" NOT NULL,
    url         text    NOT NULL,
    token       text    NOT NULL,
    scheme      text    NOT NULL,
    credentials text    NOT NULL,
    dialect     text    NOT NULL,
    host        text COLLATE "C" NOT NULL,
    created     bigint  NOT NULL,
    delivered   bigint  NOT NULL,
    shown       integer NOT NULL,
    state       integer NOT NULL,
    why         text    NOT NULL,
    tries       bigint  NOT NULL,
    failing     bigint  NOT NULL,
    due         bigint  NOT NULL,
    session     bigint  NOT NULL,
    claims      bigint  NOT NULL,
    attempts    bigint  NOT NULL,
    PRIMARY KEY (owner, task, id)
);

CREATE INDEX pushes_due ON pushes (host, due) WHERE due > 0;
CREATE INDEX pushes_dead ON pushes (failing) WHERE state = 2;

-- The last tries of each: `slot` is their number modulo how many are kept, so a new one takes the place of the oldest.
CREATE TABLE deliveries (
    owner    bigint  NOT NULL,
    task     bytea   NOT NULL,
    id       text COLLATE "C" NOT NULL,
    slot     integer NOT NULL,
    number   bigint  NOT NULL,
    sequence bigint  NOT NULL,
    at       bigint  NOT NULL,
    status   integer NOT NULL,
    error    text    NOT NULL,
    ms       bigint  NOT NULL,
    PRIMARY KEY (owner, task, id, slot)
);
