-- How far a process's clock is ahead of the database's, in milliseconds: written with its heartbeat, for "doctor" and no one else. Null: a process of
-- an earlier release.
alter table processes add column clock_ahead_ms double precision;
