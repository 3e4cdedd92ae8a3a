-- The first schema. Later ones are reached by further migrations, which never change this file.
--
-- Every table about tasks is keyed by owner first: scope and principal as one number, so that rows stay small. Times are
-- milliseconds since the epoch, costs are billionths. Texts compare by their bytes (COLLATE "C"), as they do in the server
-- and in SQLite.
--
-- Tables that grow with tasks are partitioned by the task's key, which begins with the time of its creation: ranges of keys
-- are ranges of time. All have the same partitions, named after their first day (maintenance/partitions.py).
--
-- Counters have several rows, one for each slot, whose sum counts: each process writes the rows of one slot, so that
-- processes do not wait for each other.

CREATE TABLE owners (
    owner     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope     text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL,
    UNIQUE (scope, principal)
);

CREATE INDEX owners_by_principal ON owners (principal);

-- One row for each process that ever ran agents on this store. Numbers are never used twice. `process` identifies the
-- process (processes.py), so that another one of the same machine notices its end; empty if the system does not tell.
CREATE TABLE sessions (
    session bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    started bigint NOT NULL,
    expires bigint NOT NULL,
    process text   NOT NULL
);

CREATE INDEX sessions_alive ON sessions (expires) WHERE expires > 0;

-- Columns are named after the fields of `TaskRecord` (core/task/log.py), which explains them. `agent_state` is what the
-- agent keeps for the task; `metadata` is a serialized Struct. `failure` is why a failed task failed, for operators: a
-- serialized Failure; `failure_text` is its beginning, and `cause` is the same for equal ones (core/task/failures.py).
CREATE TABLE tasks (
    owner          bigint  NOT NULL,
    task           bytea   NOT NULL,
    agent          text COLLATE "C" NOT NULL,
    id             text COLLATE "C" NOT NULL,
    context        text COLLATE "C" NOT NULL,
    created        bigint  NOT NULL,
    updated        bigint  NOT NULL,
    state          integer NOT NULL,
    last_sequence  bigint  NOT NULL,
    message_count  bigint  NOT NULL,
    status_message bigint  NOT NULL,
    question       bigint  NOT NULL,
    last_received  bigint  NOT NULL,
    last_delivered bigint  NOT NULL,
    session        bigint  NOT NULL,
    token          bigint  NOT NULL,
    ready          boolean NOT NULL,
    visible        boolean NOT NULL,
    metadata       bytea   NOT NULL,
    agent_state    bytea   NOT NULL,
    dialect        text COLLATE "C" NOT NULL,
    alias          boolean NOT NULL,
    attempt        bigint  NOT NULL,
    last_completed bigint  NOT NULL,
    principal      text COLLATE "C" NOT NULL,
    has_live_push  boolean NOT NULL,
    wake_at        bigint  NOT NULL,
    turn_at        bigint  NOT NULL,
    summary        text COLLATE "C" NOT NULL,
    status_text    text COLLATE "C" NOT NULL,
    cause          text COLLATE "C" NOT NULL DEFAULT '',
    failure_text   text COLLATE "C" NOT NULL DEFAULT '',
    failure        bytea   NOT NULL DEFAULT '',
    PRIMARY KEY (owner, task)
) PARTITION BY RANGE (task);

CREATE INDEX tasks_newest ON tasks (owner, agent, updated, task) WHERE visible;
CREATE INDEX tasks_by_state ON tasks (owner, agent, state, updated, task) WHERE visible;
CREATE INDEX tasks_by_context ON tasks (owner, context, agent, updated, task) WHERE visible;
-- Tasks that wait for a turn, by principal: each principal gets its share.
CREATE INDEX tasks_ready ON tasks (principal, agent, created, task) WHERE ready;
CREATE INDEX tasks_claimed ON tasks (session) WHERE session > 0;
CREATE INDEX tasks_sleeping ON tasks (wake_at) WHERE wake_at > 0;
CREATE INDEX tasks_hidden ON tasks (owner, context) WHERE NOT visible;

-- Tasks of all owners in the order of their last change. States above 2 have ended, or wait for a message.
CREATE INDEX tasks_active ON tasks (agent, state, updated, owner, task) WHERE state <= 2;
CREATE INDEX tasks_inactive ON tasks (agent, state, updated, owner, task) WHERE state > 2;

-- Tasks of all owners in the order of their creation: a key begins with its time.
CREATE INDEX tasks_by_key ON tasks (task);

-- Failed tasks by cause.
CREATE INDEX tasks_by_cause ON tasks (cause, updated, owner, task) WHERE cause <> '';

-- The tasks whose ids were chosen by clients: `tasks.alias`. Their uniqueness spans all partitions.
CREATE TABLE aliases (
    owner bigint NOT NULL,
    agent text COLLATE "C" NOT NULL,
    id    text COLLATE "C" NOT NULL,
    task  bytea  NOT NULL,
    PRIMARY KEY (owner, agent, id)
);

CREATE INDEX aliases_by_id ON aliases (id);
CREATE INDEX aliases_by_task ON aliases (task);

-- One row for each append: `count` events from sequence `first` on. `data` has the length of each event before it.
CREATE TABLE log (
    owner bigint  NOT NULL,
    task  bytea   NOT NULL,
    first bigint  NOT NULL,
    count integer NOT NULL,
    ends  boolean NOT NULL,
    data  bytea   NOT NULL,
    PRIMARY KEY (owner, task, first)
) PARTITION BY RANGE (task);

-- `data` has the tag and length of field 5 of Task before it, so that a history is a concatenation of rows. `sender` is
-- empty for the principal of the task's owner. `size` counts for the quota until the agent has received the message.
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
) PARTITION BY RANGE (task);

-- `head` has the fields before the parts; `position` is the sequence of the artifact's first event. Compaction has merged
-- the rows before sequence `compacted`.
CREATE TABLE artifacts (
    owner     bigint NOT NULL,
    task      bytea  NOT NULL,
    artifact  text COLLATE "C" NOT NULL,
    position  bigint NOT NULL,
    head      bytea  NOT NULL,
    compacted bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (owner, task, artifact)
) PARTITION BY RANGE (task);

CREATE TABLE chunks (
    owner    bigint  NOT NULL,
    task     bytea   NOT NULL,
    artifact text COLLATE "C" NOT NULL,
    sequence bigint  NOT NULL,
    text     boolean NOT NULL,
    data     bytea   NOT NULL,
    PRIMARY KEY (owner, task, artifact, sequence)
) PARTITION BY RANGE (task);

-- Visible tasks by state: exact totals without a count.
CREATE TABLE totals (
    owner bigint   NOT NULL,
    agent text COLLATE "C" NOT NULL,
    state integer  NOT NULL,
    slot  smallint NOT NULL,
    tasks bigint   NOT NULL,
    PRIMARY KEY (owner, agent, state, slot)
) WITH (fillfactor = 50);

-- Quota counters of principals: tasks that have not ended, and bytes of messages that no agent has received yet.
CREATE TABLE quota_counters (
    principal text COLLATE "C" NOT NULL,
    agent     text COLLATE "C" NOT NULL,
    slot      smallint NOT NULL,
    live      bigint   NOT NULL,
    queued    bigint   NOT NULL,
    PRIMARY KEY (principal, agent, slot)
) WITH (fillfactor = 50);

-- `task` is null once the task is erased. `reply` is the Message that was sent instead of a task. `first` is the last
-- sequence before the message: 0 if the message created the task. `task_owner` is null if the task has the key's owner.
CREATE TABLE idempotency (
    owner      bigint NOT NULL,
    agent      text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    digest     bytea  NOT NULL,
    task       bytea,
    reply      bytea,
    first      bigint NOT NULL,
    created    bigint NOT NULL,
    task_owner bigint,
    PRIMARY KEY (owner, agent, key)
);

CREATE INDEX idempotency_by_task ON idempotency (task) WHERE task IS NOT NULL;

-- What an agent keeps for a conversation.
CREATE TABLE context_state (
    owner   bigint NOT NULL,
    agent   text COLLATE "C" NOT NULL,
    context text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    data    bytea  NOT NULL,
    PRIMARY KEY (owner, agent, context)
);

-- Candidates for compaction. Rows may name tasks that no longer exist; the next step deletes them.

-- Tasks whose artifacts grew, and by how many rows since the last compaction.
CREATE TABLE artifact_growth (
    owner bigint NOT NULL,
    task  bytea  NOT NULL,
    rows  bigint NOT NULL,
    PRIMARY KEY (owner, task)
);

-- Tasks that ended with more events than their logs keep for good.
CREATE TABLE long_logs (
    ended bigint NOT NULL,
    owner bigint NOT NULL,
    task  bytea  NOT NULL,
    PRIMARY KEY (ended, owner, task)
);

-- Large parts (blobs.py). `maybe_unused`: a reference to it was removed, or it was just written. `touched` is the time of
-- the last write.
CREATE TABLE blobs (
    hash         bytea   PRIMARY KEY,
    content      bytea   NOT NULL,
    touched      bigint  NOT NULL,
    maybe_unused boolean NOT NULL
);

ALTER TABLE blobs ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE INDEX blobs_maybe_unused ON blobs (touched) WHERE maybe_unused;

CREATE TABLE blob_uses (
    owner bigint NOT NULL,
    task  bytea  NOT NULL,
    hash  bytea  NOT NULL REFERENCES blobs,
    PRIMARY KEY (owner, task, hash)
) PARTITION BY RANGE (task);

CREATE INDEX blob_uses_by_hash ON blob_uses (hash);

-- One row for each erasure: its time, counts of what was erased, and a digest of the ids. No id, no name, no content.
-- `touched` is the time of the last step.
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

-- Erased tasks whose rows in other tables are still to be deleted, in steps of limited size. Empty without an erasure.
CREATE TABLE erasure_queue (
    receipt bigint NOT NULL,
    id      text COLLATE "C" NOT NULL,
    owner   bigint NOT NULL,
    task    bytea  NOT NULL,
    PRIMARY KEY (receipt, id, owner, task)
);

-- API keys. `digest` is the SHA-256 of the secret, `former` that of the secret before the last rotation, valid until
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

-- Push configurations, each with a cursor over its task's log. `host` is the host that the URL names, `state` is a
-- core.push.delivery.PushState, `due_at` is the time of the next delivery: 0 for none. `claim_token` is the fencing token
-- of the session that delivers.
CREATE TABLE pushes (
    owner           bigint  NOT NULL,
    task            bytea   NOT NULL,
    id              text COLLATE "C" NOT NULL,
    url             text    NOT NULL,
    token           text    NOT NULL,
    scheme          text    NOT NULL,
    credentials     text    NOT NULL,
    dialect         text    NOT NULL,
    host            text COLLATE "C" NOT NULL,
    created         bigint  NOT NULL,
    last_delivered  bigint  NOT NULL,
    last_state_sent integer NOT NULL,
    state           integer NOT NULL,
    reason          text    NOT NULL,
    failures        bigint  NOT NULL,
    rejections      bigint  NOT NULL,
    given_up_events bigint  NOT NULL,
    first_given_up  bigint  NOT NULL,
    failing_since   bigint  NOT NULL,
    due_at          bigint  NOT NULL,
    session         bigint  NOT NULL,
    claim_token     bigint  NOT NULL,
    attempt_count   bigint  NOT NULL,
    PRIMARY KEY (owner, task, id)
) PARTITION BY RANGE (task);

CREATE INDEX pushes_due ON pushes (host, (failures > 0), due_at) WHERE due_at > 0;
CREATE INDEX pushes_given_up ON pushes (failing_since) WHERE state = 2 OR first_given_up > 0;

-- The last attempts of each push. `slot` is the number modulo the number of rows kept: a new row replaces the oldest.
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
) PARTITION BY RANGE (task);

-- Agents that workers provide: the principal of the workers, and the registration of the worker that connected last.
CREATE TABLE worker_agents (
    agent        text COLLATE "C" PRIMARY KEY,
    principal    text   NOT NULL,
    registration bytea  NOT NULL,
    since        bigint NOT NULL,
    seen         bigint NOT NULL
);

-- Upstream agents that were added while a server ran. `entry` has the credentials.
CREATE TABLE upstreams (
    agent text COLLATE "C" PRIMARY KEY,
    entry bytea  NOT NULL,
    since bigint NOT NULL
);

-- Cancels of running tasks: the task is to stop, unless it has already handled its message `until`. `metadata` is that of
-- the request: a serialized Struct. `requested`: when the first one came, in milliseconds since the epoch. Rows may name
-- tasks that have ended or no longer exist; maintenance deletes them.
CREATE TABLE cancel_requests (
    owner     bigint NOT NULL,
    task      bytea  NOT NULL,
    until     bigint NOT NULL,
    metadata  bytea  NOT NULL,
    requested bigint NOT NULL,
    PRIMARY KEY (owner, task)
);

-- A mark of each transaction that writes, for a while: a caller that got no answer to its commit finds out whether it
-- happened. A mark begins with its time, in milliseconds and six bytes.
CREATE TABLE commits (mark bytea PRIMARY KEY);

-- Locks for a write that is one statement. False while another write has to be alone, which may change partitions: to wait
-- for it would be a deadlock, because the statement holds locks of its tables. Else whether these owners exist: that is
-- read after the lock was taken, with a snapshot of its own, and holds until the end of the transaction. The statement's
-- snapshot is older.
CREATE FUNCTION lock_for_append(lock bigint, numbers bigint[]) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared(lock) THEN
        RETURN false;
    END IF;
    RETURN (SELECT count(*) FROM owners WHERE owner = ANY (numbers)) = cardinality(numbers);
END
$$;

-- The audit log (core/audit.py). `who` is JSON; it and `salt` are NULL once the principal was erased. `principal` lets an
-- erasure find the entry, and is emptied by it.
CREATE TABLE audit (
    number    bigint PRIMARY KEY,
    at        bigint NOT NULL,
    action    text   NOT NULL,
    outcome   text   NOT NULL,
    about     text   NOT NULL,
    who       text,
    salt      bytea,
    seal      bytea  NOT NULL,
    hash      bytea  NOT NULL,
    principal text   NOT NULL
);

CREATE INDEX audit_by_principal ON audit (principal) WHERE principal <> '';

-- What tasks have used, as their agents reported: a row for each key, and one without a key for all other reports.
CREATE TABLE usage (
    owner  bigint NOT NULL,
    task   bytea  NOT NULL,
    key    text COLLATE "C" NOT NULL,
    tokens bigint NOT NULL,
    cost   bigint NOT NULL,
    PRIMARY KEY (owner, task, key)
) PARTITION BY RANGE (task);

-- The parent of each task that works for another one. Both have the same owner.
CREATE TABLE parents (
    owner  bigint NOT NULL,
    task   bytea  NOT NULL,
    parent bytea  NOT NULL,
    PRIMARY KEY (owner, task)
) PARTITION BY RANGE (task);

CREATE INDEX parents_by_parent ON parents (owner, parent);

-- What all tasks below a task have used.
CREATE TABLE delegated_usage (
    owner  bigint NOT NULL,
    task   bytea  NOT NULL,
    tokens bigint NOT NULL,
    cost   bigint NOT NULL,
    PRIMARY KEY (owner, task)
) PARTITION BY RANGE (task);

-- Durable steps of turns (core/task/steps.py). `turn` is 0 for the current turn; `result` is a serialized Part,
-- `details` a serialized StepDetails.
CREATE TABLE steps (
    owner    bigint NOT NULL,
    task     bytea  NOT NULL,
    turn     bigint NOT NULL,
    name     text COLLATE "C" NOT NULL,
    number   bigint NOT NULL,
    position bigint NOT NULL,
    state    bigint NOT NULL,
    attempt  bigint NOT NULL,
    started  bigint NOT NULL,
    ended    bigint NOT NULL,
    wake_at  bigint NOT NULL,
    size     bigint NOT NULL,
    result   bytea  NOT NULL,
    error    text   NOT NULL,
    details  bytea  NOT NULL,
    PRIMARY KEY (owner, task, turn, name, number)
) PARTITION BY RANGE (task);

-- What tasks did and used (core/daily_usage.py), by the number of the UTC day. `turn_us` is in microseconds. An empty
-- principal stands for erased ones.
CREATE TABLE daily_usage (
    day       bigint NOT NULL,
    scope     text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL,
    agent     text COLLATE "C" NOT NULL,
    slot      smallint NOT NULL,
    begun     bigint NOT NULL,
    completed bigint NOT NULL,
    failed    bigint NOT NULL,
    canceled  bigint NOT NULL,
    rejected  bigint NOT NULL,
    turns     bigint NOT NULL,
    turn_us   bigint NOT NULL,
    tokens    bigint NOT NULL,
    cost      bigint NOT NULL,
    PRIMARY KEY (day, scope, principal, agent, slot)
) WITH (fillfactor = 50);

-- The same of the last hours, by the number of the UTC hour, in bucket 0. Maintenance adds these rows to `daily_usage`.
-- The other buckets are histograms of all principals: `times` turns took, or waited for, `time_us` microseconds together.
CREATE TABLE hourly_usage (
    hour      bigint NOT NULL,
    scope     text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL,
    agent     text COLLATE "C" NOT NULL,
    slot      smallint NOT NULL,
    begun     bigint NOT NULL,
    completed bigint NOT NULL,
    failed    bigint NOT NULL,
    canceled  bigint NOT NULL,
    rejected  bigint NOT NULL,
    turns     bigint NOT NULL,
    turn_us   bigint NOT NULL,
    tokens    bigint NOT NULL,
    cost      bigint NOT NULL,
    bucket    bigint NOT NULL,
    times     bigint NOT NULL,
    time_us   bigint NOT NULL,
    PRIMARY KEY (hour, scope, principal, agent, bucket, slot)
) WITH (fillfactor = 50);

-- One partition for all time, until maintenance adds others.
CREATE TABLE tasks_19700101 PARTITION OF tasks FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
CREATE TABLE log_19700101 PARTITION OF log FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
CREATE TABLE messages_19700101 PARTITION OF messages FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
CREATE TABLE artifacts_19700101 PARTITION OF artifacts FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
CREATE TABLE chunks_19700101 PARTITION OF chunks FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
CREATE TABLE steps_19700101 PARTITION OF steps FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
CREATE TABLE usage_19700101 PARTITION OF usage FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
CREATE TABLE delegated_usage_19700101 PARTITION OF delegated_usage FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
CREATE TABLE parents_19700101 PARTITION OF parents FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
CREATE TABLE pushes_19700101 PARTITION OF pushes FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
CREATE TABLE deliveries_19700101 PARTITION OF deliveries FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
CREATE TABLE blob_uses_19700101 PARTITION OF blob_uses FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
