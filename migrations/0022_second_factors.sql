-- What proves a user's second factor. Whether there is one, and which, is in the event log: a row that is missing refuses the user, and one
-- too many says nothing.
create table user_second_factors (
  user_name text primary key references users (name) on update cascade on delete cascade,
  factor_id text collate "C" not null,
  -- The secret of RFC 6238, sealed for this factor.
  sealed_secret text not null,
  codes_id text collate "C" not null,
  -- SHA-256 of each recovery code, sealed for this list of them: who can write here cannot add one. Which were used is in the event log.
  sealed_codes text not null,
  -- The step of the last code that was taken: one counts once (RFC 6238 §5.2).
  last_step bigint not null,
  -- Wrong codes of one day (UTC).
  wrong_on date,
  wrong int not null default 0
);
