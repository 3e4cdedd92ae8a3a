-- What tasks have used, as their agents reported: a row for each key, and one without a key for all other reports. `cost`
-- is in billionths.
CREATE TABLE usage (
    owner  bigint NOT NULL,
    task   bytea  NOT NULL,
    key    text COLLATE "C" NOT NULL,
    tokens bigint NOT NULL,
    cost   bigint NOT NULL,
    PRIMARY KEY (owner, task, key)
);
