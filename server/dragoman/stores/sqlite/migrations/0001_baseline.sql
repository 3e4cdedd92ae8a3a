-- The first schema. Later ones are reached by further migrations, which never change this file.
--
-- Every table about tasks is keyed by owner first: scope and principal as one number, so that rows stay small. Times are
-- milliseconds since the epoch, costs are billionths.

CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE owners (
    owner     INTEGER PRIMARY KEY,
    scope     TEXT NOT NULL,
    principal TEXT NOT NULL,
    UNIQUE (scope, principal)
);

CREATE INDEX owners_by_principal ON owners (principal);

-- One row for each process that ever ran agents on this store. Numbers are never used twice.
CREATE TABLE sessions (
    session INTEGER PRIMARY KEY AUTOINCREMENT,
    started INTEGER NOT NULL,
    expires INTEGER NOT NULL
);

-- Columns are named after the fields of `TaskRecord` (core/task/log.py), which explains them. `agent_state` is what the
-- agent keeps for the task; `metadata` is a serialized Struct. `listed`: whether `totals` and the indexes of lists and
-- searches have the task, which is some time after its first commit (hot/figures.py). `failure` is why a failed task
-- failed, for operators: a serialized Failure; `failure_text` is its beginning, and `cause` is the same for equal ones
-- (core/task/failures.py).
CREATE TABLE tasks (
    owner          INTEGER NOT NULL REFERENCES owners,
    task           BLOB    NOT NULL,
    agent          TEXT    NOT NULL,
    id             TEXT    NOT NULL,
    context        TEXT    NOT NULL,
    created        INTEGER NOT NULL,
    updated        INTEGER NOT NULL,
    state          INTEGER NOT NULL,
    last_sequence  INTEGER NOT NULL,
    message_count  INTEGER NOT NULL,
    status_message INTEGER NOT NULL,
    question       INTEGER NOT NULL,
    last_received  INTEGER NOT NULL,
    last_delivered INTEGER NOT NULL,
    session        INTEGER NOT NULL,
    token          INTEGER NOT NULL,
    ready          INTEGER NOT NULL,
    visible        INTEGER NOT NULL,
    listed         INTEGER NOT NULL DEFAULT 0,
    metadata       BLOB    NOT NULL,
    agent_state    BLOB    NOT NULL,
    dialect        TEXT    NOT NULL,
    alias          INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    last_completed INTEGER NOT NULL,
    principal      TEXT    NOT NULL,
    has_live_push  INTEGER NOT NULL,
    wake_at        INTEGER NOT NULL,
    turn_at        INTEGER NOT NULL,
    summary        TEXT    NOT NULL,
    status_text    TEXT    NOT NULL,
    cause          TEXT    NOT NULL DEFAULT '',
    failure_text   TEXT    NOT NULL DEFAULT '',
    failure        BLOB    NOT NULL DEFAULT x'',
    PRIMARY KEY (owner, task)
) WITHOUT ROWID;

CREATE INDEX tasks_newest ON tasks (owner, agent, updated, task) WHERE listed;
CREATE INDEX tasks_by_state ON tasks (owner, agent, state, updated, task) WHERE listed;
CREATE INDEX tasks_by_context ON tasks (owner, context, agent, updated, task) WHERE listed;
CREATE UNIQUE INDEX tasks_by_alias ON tasks (owner, agent, id) WHERE alias;
-- Tasks that wait for a turn, by principal: each principal gets its share.
CREATE INDEX tasks_ready ON tasks (principal, agent, created) WHERE ready;
CREATE INDEX tasks_unlisted ON tasks (owner, task) WHERE listed = 0;
CREATE INDEX tasks_claimed ON tasks (session) WHERE session > 0 AND listed;
CREATE INDEX tasks_sleeping ON tasks (wake_at) WHERE wake_at > 0;

-- Tasks of all owners in the order of their last change. States above 2 have ended, or wait for a message.
CREATE INDEX tasks_active ON tasks (agent, state, updated) WHERE state <= 2 AND listed;
CREATE INDEX tasks_inactive ON tasks (agent, state, updated) WHERE state > 2 AND listed;

-- Tasks of all owners in the order of their creation: a key begins with its time. The index has their texts, because
-- tasks of different owners are far apart in the table.
CREATE INDEX tasks_by_key ON tasks (task, agent, summary, status_text, failure_text) WHERE listed;

-- Failed tasks by cause.
CREATE INDEX tasks_by_cause ON tasks (cause, updated) WHERE cause <> '' AND listed;

-- One row for each append: `count` events from sequence `first` on. `data` has the length of each event before it.
CREATE TABLE log (
    owner INTEGER NOT NULL,
    task  BLOB    NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    ends  INTEGER NOT NULL,
    data  BLOB    NOT NULL,
    PRIMARY KEY (owner, task, first)
) WITHOUT ROWID;

-- `data` has the tag and length of field 5 of Task before it, so that a history is a concatenation of rows. `sender` is
-- empty for the principal of the task's owner. `size` counts for the quota until the agent has received the message.
CREATE TABLE messages (
    owner    INTEGER NOT NULL,
    task     BLOB    NOT NULL,
    number   INTEGER NOT NULL,
    role     INTEGER NOT NULL,
    data     BLOB    NOT NULL,
    envelope BLOB    NOT NULL,
    sender   TEXT    NOT NULL,
    size     INTEGER NOT NULL,
    PRIMARY KEY (owner, task, number)
) WITHOUT ROWID;

-- `head` has the fields before the parts; `position` is the sequence of the artifact's first event. Compaction has merged
-- the rows before sequence `compacted`.
CREATE TABLE artifacts (
    owner     INTEGER NOT NULL,
    task      BLOB    NOT NULL,
    artifact  TEXT    NOT NULL,
    position  INTEGER NOT NULL,
    head      BLOB    NOT NULL,
    compacted INTEGER NOT NULL DEFAULT 0,
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

-- Listed tasks by state: exact totals without a count.
CREATE TABLE totals (
    owner INTEGER NOT NULL,
    agent TEXT    NOT NULL,
    state INTEGER NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (owner, agent, state)
) WITHOUT ROWID;

-- `task` is null once the task is erased. `reply` is the Message that was sent instead of a task. `first` is the last
-- sequence before the message: 0 if the message created the task. `task_owner` is null if the task has the key's owner.
CREATE TABLE idempotency (
    owner      INTEGER NOT NULL,
    agent      TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    digest     BLOB    NOT NULL,
    task       BLOB,
    reply      BLOB,
    first      INTEGER NOT NULL,
    created    INTEGER NOT NULL,
    task_owner INTEGER,
    PRIMARY KEY (owner, agent, key)
) WITHOUT ROWID;

CREATE INDEX idempotency_by_task ON idempotency (owner, task);
CREATE INDEX idempotency_by_age ON idempotency (created);
CREATE INDEX idempotency_by_task_owner ON idempotency (task_owner, task) WHERE task_owner IS NOT NULL;

-- What an agent keeps for a conversation.
CREATE TABLE context_state (
    owner   INTEGER NOT NULL,
    agent   TEXT    NOT NULL,
    context TEXT    NOT NULL,
    version INTEGER NOT NULL,
    data    BLOB    NOT NULL,
    PRIMARY KEY (owner, agent, context)
) WITHOUT ROWID;

-- Candidates for compaction. Rows may name tasks that no longer exist; the next step deletes them.

-- Tasks whose artifacts grew, and by how many rows since the last compaction.
CREATE TABLE artifact_growth (
    owner INTEGER NOT NULL,
    task  BLOB    NOT NULL,
    rows  INTEGER NOT NULL,
    PRIMARY KEY (owner, task)
) WITHOUT ROWID;

-- Tasks that ended with more events than their logs keep for good.
CREATE TABLE long_logs (
    ended INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    task  BLOB    NOT NULL,
    PRIMARY KEY (ended, owner, task)
) WITHOUT ROWID;

-- Large parts are files beside the database (blobs.py). `uses` counts the tasks that refer to one; at 0 it can be deleted.
CREATE TABLE blobs (
    hash BLOB    PRIMARY KEY,
    size INTEGER NOT NULL,
    uses INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX blobs_unused ON blobs (hash) WHERE uses = 0;

CREATE TABLE blob_uses (
    owner INTEGER NOT NULL,
    task  BLOB    NOT NULL,
    hash  BLOB    NOT NULL,
    PRIMARY KEY (owner, task, hash)
) WITHOUT ROWID;

-- One row for each erasure: its time, counts of what was erased, and a digest of the ids. No id, no name, no content.
CREATE TABLE receipts (
    receipt   INTEGER PRIMARY KEY AUTOINCREMENT,
    reason    TEXT    NOT NULL,
    selection TEXT    NOT NULL,
    began     INTEGER NOT NULL,
    ended     INTEGER NOT NULL DEFAULT 0,
    tasks     INTEGER NOT NULL DEFAULT 0,
    events    INTEGER NOT NULL DEFAULT 0,
    messages  INTEGER NOT NULL DEFAULT 0,
    artifacts INTEGER NOT NULL DEFAULT 0,
    chunks    INTEGER NOT NULL DEFAULT 0,
    bytes     INTEGER NOT NULL DEFAULT 0,
    digest    TEXT    NOT NULL DEFAULT ''
);

-- Erased tasks whose rows in other tables are still to be deleted, in steps of limited size. Empty without an erasure.
CREATE TABLE erasure_queue (
    receipt INTEGER NOT NULL,
    id      TEXT    NOT NULL,
    owner   INTEGER NOT NULL,
    task    BLOB    NOT NULL,
    PRIMARY KEY (receipt, id, owner, task)
) WITHOUT ROWID;

-- API keys. `digest` is the SHA-256 of the secret, `former` that of the secret before the last rotation, valid until
-- `former_until`. 0 is never. `grants` is a JSON array.
CREATE TABLE api_keys (
    id           TEXT    PRIMARY KEY,
    name         TEXT    NOT NULL,
    principal    TEXT    NOT NULL,
    grants       TEXT    NOT NULL,
    digest       BLOB    NOT NULL,
    created      INTEGER NOT NULL,
    expires      INTEGER NOT NULL,
    used         INTEGER NOT NULL,
    rotated      INTEGER NOT NULL,
    revoked      INTEGER NOT NULL,
    former       BLOB    NOT NULL,
    former_until INTEGER NOT NULL
) WITHOUT ROWID;

-- Push configurations, each with a cursor over its task's log. `host` is the host that the URL names, `state` is a
-- core.push.delivery.PushState, `due_at` is the time of the next delivery: 0 for none. `claim_token` is the fencing token
-- of the session that delivers.
CREATE TABLE pushes (
    owner           INTEGER NOT NULL,
    task            BLOB    NOT NULL,
    id              TEXT    NOT NULL,
    url             TEXT    NOT NULL,
    token           TEXT    NOT NULL,
    scheme          TEXT    NOT NULL,
    credentials     TEXT    NOT NULL,
    dialect         TEXT    NOT NULL,
    host            TEXT    NOT NULL,
    created         INTEGER NOT NULL,
    last_delivered  INTEGER NOT NULL,
    last_state_sent INTEGER NOT NULL,
    state           INTEGER NOT NULL,
    reason          TEXT    NOT NULL,
    failures        INTEGER NOT NULL,
    rejections      INTEGER NOT NULL,
    given_up_events INTEGER NOT NULL,
    first_given_up  INTEGER NOT NULL,
    failing_since   INTEGER NOT NULL,
    due_at          INTEGER NOT NULL,
    session         INTEGER NOT NULL,
    claim_token     INTEGER NOT NULL,
    attempt_count   INTEGER NOT NULL,
    PRIMARY KEY (owner, task, id)
) WITHOUT ROWID;

CREATE INDEX pushes_due ON pushes (host, failures > 0, due_at) WHERE due_at > 0;
CREATE INDEX pushes_given_up ON pushes (failing_since) WHERE state = 2 OR first_given_up > 0;

-- The last attempts of each push. `slot` is the number modulo the number of rows kept: a new row replaces the oldest.
CREATE TABLE deliveries (
    owner    INTEGER NOT NULL,
    task     BLOB    NOT NULL,
    id       TEXT    NOT NULL,
    slot     INTEGER NOT NULL,
    number   INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    status   INTEGER NOT NULL,
    error    TEXT    NOT NULL,
    ms       INTEGER NOT NULL,
    PRIMARY KEY (owner, task, id, slot)
) WITHOUT ROWID;

-- Agents that workers provide: the principal of the workers, and the registration of the worker that connected last.
CREATE TABLE worker_agents (
    agent        TEXT    NOT NULL PRIMARY KEY,
    principal    TEXT    NOT NULL,
    registration BLOB    NOT NULL,
    since        INTEGER NOT NULL,
    seen         INTEGER NOT NULL
) WITHOUT ROWID;

-- Upstream agents that were added while a server ran. `entry` has the credentials.
CREATE TABLE upstreams (
    agent TEXT    NOT NULL PRIMARY KEY,
    entry BLOB    NOT NULL,
    since INTEGER NOT NULL
) WITHOUT ROWID;

-- Cancels of running tasks: the task is to stop, unless it has already handled its message `until`. `metadata` is that of
-- the request: a serialized Struct. `requested`: when the first one came, in milliseconds since the epoch. Rows may name
-- tasks that have ended or no longer exist; maintenance deletes them.
CREATE TABLE cancel_requests (
    owner     INTEGER NOT NULL,
    task      BLOB    NOT NULL,
    until     INTEGER NOT NULL,
    metadata  BLOB    NOT NULL,
    requested INTEGER NOT NULL,
    PRIMARY KEY (owner, task)
) WITHOUT ROWID;

-- The audit log (core/audit.py). `who` is JSON; it and `salt` are NULL once the principal was erased. `principal` lets an
-- erasure find the entry, and is emptied by it.
CREATE TABLE audit (
    number    INTEGER PRIMARY KEY,
    at        INTEGER NOT NULL,
    action    TEXT    NOT NULL,
    outcome   TEXT    NOT NULL,
    about     TEXT    NOT NULL,
    who       TEXT,
    salt      BLOB,
    seal      BLOB    NOT NULL,
    hash      BLOB    NOT NULL,
    principal TEXT    NOT NULL
);

CREATE INDEX audit_by_principal ON audit (principal) WHERE principal <> '';

-- What tasks have used, as their agents reported: a row for each key, and one without a key for all other reports.
CREATE TABLE usage (
    owner  INTEGER NOT NULL,
    task   BLOB    NOT NULL,
    key    TEXT    NOT NULL,
    tokens INTEGER NOT NULL,
    cost   INTEGER NOT NULL,
    PRIMARY KEY (owner, task, key)
) WITHOUT ROWID;

-- The parent of each task that works for another one. Both have the same owner.
CREATE TABLE parents (
    owner  INTEGER NOT NULL,
    task   BLOB    NOT NULL,
    parent BLOB    NOT NULL,
    PRIMARY KEY (owner, task)
) WITHOUT ROWID;

CREATE INDEX parents_by_parent ON parents (owner, parent);

-- What all tasks below a task have used.
CREATE TABLE delegated_usage (
    owner  INTEGER NOT NULL,
    task   BLOB    NOT NULL,
    tokens INTEGER NOT NULL,
    cost   INTEGER NOT NULL,
    PRIMARY KEY (owner, task)
) WITHOUT ROWID;

-- Durable steps of turns (core/task/steps.py). `turn` is 0 for the current turn; `result` is a serialized Part,
-- `details` a serialized StepDetails.
CREATE TABLE steps (
    owner    INTEGER NOT NULL,
    task     BLOB    NOT NULL,
    turn     INTEGER NOT NULL,
    name     TEXT    NOT NULL,
    number   INTEGER NOT NULL,
    position INTEGER NOT NULL,
    state    INTEGER NOT NULL,
    attempt  INTEGER NOT NULL,
    started  INTEGER NOT NULL,
    ended    INTEGER NOT NULL,
    wake_at  INTEGER NOT NULL,
    size     INTEGER NOT NULL,
    result   BLOB    NOT NULL,
    error    TEXT    NOT NULL,
    details  BLOB    NOT NULL,
    PRIMARY KEY (owner, task, turn, name, number)
) WITHOUT ROWID;

-- What tasks did and used (core/daily_usage.py), by the number of the UTC day. `turn_us` is in microseconds. An empty
-- principal stands for erased ones.
CREATE TABLE daily_usage (
    day       INTEGER NOT NULL,
    scope     TEXT    NOT NULL,
    principal TEXT    NOT NULL,
    agent     TEXT    NOT NULL,
    begun     INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    failed    INTEGER NOT NULL,
    canceled  INTEGER NOT NULL,
    rejected  INTEGER NOT NULL,
    turns     INTEGER NOT NULL,
    turn_us   INTEGER NOT NULL,
    tokens    INTEGER NOT NULL,
    cost      INTEGER NOT NULL,
    PRIMARY KEY (day, scope, principal, agent)
) WITHOUT ROWID;

-- The same of the last hours, by the number of the UTC hour, in bucket 0. Maintenance adds these rows to `daily_usage`.
-- The other buckets are histograms of all principals: `times` turns took, or waited for, `time_us` microseconds together.
CREATE TABLE hourly_usage (
    hour      INTEGER NOT NULL,
    scope     TEXT    NOT NULL,
    principal TEXT    NOT NULL,
    agent     TEXT    NOT NULL,
    begun     INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    failed    INTEGER NOT NULL,
    canceled  INTEGER NOT NULL,
    rejected  INTEGER NOT NULL,
    turns     INTEGER NOT NULL,
    turn_us   INTEGER NOT NULL,
    tokens    INTEGER NOT NULL,
    cost      INTEGER NOT NULL,
    bucket    INTEGER NOT NULL,
    times     INTEGER NOT NULL,
    time_us   INTEGER NOT NULL,
    PRIMARY KEY (hour, scope, principal, agent, bucket)
) WITHOUT ROWID;
