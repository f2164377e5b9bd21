-- The api processes that live: each writes the time of its own row every second, by the database's clock. Not derived from the event log, and a
-- hint alone: it says who is to write an organization's ledger, which affects cost and never meaning. A row that is
-- missing, left over or wrong costs conflicts; emptied, the table fills itself within a second.
create table processes (
  -- One run of one process: a ULID.
  process_id text collate "C" primary key check (process_id ~ '^[0-9A-Z]{26}$'),
  -- Where it takes ledger commands of the others, host:port; null while it lives alone and does not listen.
  address text check (length(address) <= 300),
  roles text[] not null,
  -- Where it counts rate limits: `redis`, or the id of the process whose counters they are, its own or another's.
  counters text not null check (length(counters) <= 100),
  -- Commands it writes into ledgers, per second, and how many processes it finds should write: what the oldest one says holds.
  written real not null default 0,
  owners integer not null default 1,
  -- For people, and for telling two processes with one id apart.
  host text not null check (length(host) <= 255),
  pid integer not null,
  started_at timestamptz not null default now(),
  heartbeat_at timestamptz not null default now()
  -- No index on the time: an update stays in its page.
) with (fillfactor = 20);
