-- Which event log the read models of this database were folded from. Positions of one log mean nothing in another: a
-- process that is pointed elsewhere must not go on from them.
create table installation (
  one boolean primary key default true check (one),
  event_log text not null
);

-- Marks a database that was closed by a final backup, or into which one is being restored: no process starts on either. Otherwise there
-- is no row.
create table installation_mark (
  one boolean primary key default true check (one),
  backup_id uuid not null,
  state text not null check (state in ('left', 'arriving')),
  -- For people: the file of the final backup, or the event log that is restored into, without secrets.
  elsewhere text not null,
  -- The rows of the backup are in the database.
  loaded boolean not null default false,
  since timestamptz not null default now()
);

-- The api processes that are alive: each writes the time of its own row every second, by the database's clock. Not derived from the event
-- log, and for people alone: emptied, the table fills itself within a second.
create table processes (
  -- One run of one process: a ULID.
  process_id text collate "C" primary key check (process_id ~ '^[0-9A-Z]{26}$'),
  roles text[] not null,
  -- Where it counts rate limits: `redis`, or its own id.
  counters text not null check (length(counters) <= 100),
  -- How far its clock is ahead of the database's.
  clock_ahead_ms double precision not null,
  host text not null check (length(host) <= 255),
  pid integer not null,
  started_at timestamptz not null default now(),
  heartbeat_at timestamptz not null default now()
  -- No index on the time: an update stays in its page.
) with (fillfactor = 20);

-- The keys that values in this database are sealed under; the keys themselves are in KEY_DIR. Every sealed value begins with the id
-- of its key and a dot. A key named here that is not there is lost, and nothing is sealed until that is settled.
create table epoch_keys (
  key_id text collate "C" primary key,
  epoch int not null,
  created_at timestamptz not null default now(),
  destroyed_at timestamptz
);
-- Where processes have directories of their own by mistake, only one of them seals.
create unique index epoch_keys_live on epoch_keys (epoch) where destroyed_at is null;
