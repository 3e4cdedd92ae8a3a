-- Cancels that were asked for of tasks that somebody ran: the task is to stop, as long as it has not answered its message
-- `until`. What is here may speak of tasks that are no more, or that have ended: tidying takes the row away.
CREATE TABLE cancels (
    owner bigint NOT NULL,
    task  bytea  NOT NULL,
    until bigint NOT NULL,
    PRIMARY KEY (owner, task)
);
