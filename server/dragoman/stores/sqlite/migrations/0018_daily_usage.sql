-- since 17
-- What tasks did and used (core/daily_usage.py), by the number of the UTC day. `turn_us` is in microseconds, `cost` in
-- billionths. An empty principal stands for erased ones.
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
