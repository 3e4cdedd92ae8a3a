-- The audit log: see core/audit.py. `who` is JSON, and NULL with `salt` once its principal was erased. `principal` is there to be
-- found by an erasure, and goes with them.
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
