-- Folding (folding.py). What is here may speak of tasks that are no more: the next step then takes the row away.

-- The rows of an artifact before this sequence are as few as they get.
ALTER TABLE artifacts ADD COLUMN folded INTEGER NOT NULL DEFAULT 0;

-- Tasks whose artifacts grew, and by how many rows since they were last looked at.
CREATE TABLE grown (
    owner INTEGER NOT NULL,
    task  BLOB    NOT NULL,
    rows  INTEGER NOT NULL,
    PRIMARY KEY (owner, task)
) WITHOUT ROWID;

-- Tasks that ended with more events than are kept for ever.
CREATE TABLE long (
    ended INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    task  BLOB    NOT NULL,
    PRIMARY KEY (ended, owner, task)
) WITHOUT ROWID;

INSERT INTO grown
    SELECT owner, task, count(*) FROM chunks GROUP BY owner, task HAVING count(*) >= 64;
INSERT INTO long
    SELECT updated, owner, task FROM tasks WHERE last > 64 AND state IN (3, 4, 5, 7);

-- Large parts are files beside the database (blobs.py). `uses` counts the tasks that refer to one; at 0 it may go.
CREATE TABLE blobs (
    hash BLOB    PRIMARY KEY,
    size INTEGER NOT NULL,
    uses INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX blobs_free ON blobs (hash) WHERE uses = 0;

CREATE TABLE blob_uses (
    owner INTEGER NOT NULL,
    task  BLOB    NOT NULL,
    hash  BLOB    NOT NULL,
    PRIMARY KEY (owner, task, hash)
) WITHOUT ROWID;
