-- A mark of each transaction that writes, for a while: whoever got no answer to a commit finds out what became of it. A
-- mark begins with its time, in milliseconds and six bytes.
CREATE TABLE commits (mark bytea PRIMARY KEY);
