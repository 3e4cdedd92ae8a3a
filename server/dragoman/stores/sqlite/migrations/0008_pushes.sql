-- Push notifications (pushes.py): who is told of a task besides those who ask, and how far each is.

-- Whether the task has a configuration that is live, so that all others pay nothing for there being any.
ALTER TABLE tasks ADD COLUMN pushed INTEGER NOT NULL DEFAULT 0;

-- A cursor over the task's log for each configuration. `host` is whom the URL calls, `state` is a
-- dragoman.core.push.PushState; `due` is when there is something to do, 0 for never.
CREATE TABLE pushes (
    owner       INTEGER NOT NULL,
    task        BLOB    NOT NULL,
    id          TEXT    NOT NULL,
    url         TEXT    NOT NULL,
    token       TEXT    NOT NULL,
    scheme      TEXT    NOT NULL,
    credentials TEXT    NOT NULL,
    dialect     TEXT    NOT NULL,
    host        TEXT    NOT NULL,
    created     INTEGER NOT NULL,
    delivered   INTEGER NOT NULL,
    shown       INTEGER NOT NULL,
    state       INTEGER NOT NULL,
    why         TEXT    NOT NULL,
    tries       INTEGER NOT NULL,
    failing     INTEGER NOT NULL,
    due         INTEGER NOT NULL,
    session     INTEGER NOT NULL,
    claims      INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    PRIMARY KEY (owner, task, id)
) WITHOUT ROWID;

CREATE INDEX pushes_due ON pushes (host, due) WHERE due > 0;
CREATE INDEX pushes_dead ON pushes (failing) WHERE state = 2;

-- The last tries of each: `slot` is their number modulo how many are kept, so a new one takes the place of the oldest.
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
