-- API keys. Of a secret there is only the SHA-256; `former` is that of the secret before the last rotation, good until
-- `former_until`. Times are milliseconds since the epoch, 0 for never. `grants` is a JSON array.
CREATE TABLE api_keys (
    id           TEXT    PRIMARY KEY,
    name         TEXT    NOT NULL,
    principal    TEXT    NOT NULL,
    grants       TEXT    NOT NULL,
    digest       BLOB    NOT NULL,
    created      INTEGER NOT NULL,
    expires      INTEGER NOT NULL,
    used         INTEGER NOT NULL,
    rotated      INTEGER NOT NULL,
    revoked      INTEGER NOT NULL,
    former       BLOB    NOT NULL,
    former_until INTEGER NOT NULL
) WITHOUT ROWID;
