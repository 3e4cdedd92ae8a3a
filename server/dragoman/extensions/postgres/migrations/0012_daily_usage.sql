-- since 11
-- What tasks did and used (core/daily_usage.py), by the number of the UTC day. `turn_us` is in microseconds, `cost` in
-- billionths. An empty principal stands for erased ones. Rows of several slots are summed.
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
