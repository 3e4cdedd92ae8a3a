-- The audit log: see core/audit.py. `who` is JSON, and NULL with `salt` once its principal was erased. `principal` is there to be
-- found by an erasure, and goes with them.
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
