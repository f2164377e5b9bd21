-- How often the dashboard was tried to be entered in the last minute, by all its processes together. Not derived from the event log: losing it
-- gives everyone a minute of attempts anew. The columns, in this order, are those of rate-limiter-flexible.
create table dashboard_attempts (
  -- What is counted, and an HMAC of whom: people type passwords into the wrong field.
  key text collate "C" primary key,
  points int not null,
  -- Milliseconds since 1970.
  expire bigint
);
create index dashboard_attempts_expire on dashboard_attempts (expire);
