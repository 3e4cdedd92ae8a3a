-- since 13
-- What tasks did and used in the last hours (core/daily_usage.py), by the number of the UTC hour; otherwise as in
-- daily_usage, whose rows later get these figures.
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
    PRIMARY KEY (hour, scope, principal, agent, slot)
) WITH (fillfactor = 50);
