-- since 19
-- What tasks did and used in the last hours (core/daily_usage.py), by the number of the UTC hour; otherwise as in
-- daily_usage, whose rows later get these figures.
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
    PRIMARY KEY (hour, scope, principal, agent)
) WITHOUT ROWID;
