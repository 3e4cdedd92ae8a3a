-- Agents upstream that were added while a server ran, and what was said of each, with credentials.
CREATE TABLE upstreams (
    agent text COLLATE "C" PRIMARY KEY,
    entry bytea  NOT NULL,
    since bigint NOT NULL
);
