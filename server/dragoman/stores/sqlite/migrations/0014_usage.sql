-- What tasks have used, as their agents reported: a row for each key, and one without a key for all other reports. `cost`
-- is in billionths.
CREATE TABLE usage (
    owner  INTEGER NOT NULL,
    task   BLOB    NOT NULL,
    key    TEXT    NOT NULL,
    tokens INTEGER NOT NULL,
    cost   INTEGER NOT NULL,
    PRIMARY KEY (owner, task, key)
) WITHOUT ROWID;
