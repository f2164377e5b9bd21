-- What the projector needs to fold the event log into read models. The read models' own tables are created by the
-- projections that write them, one set per version, in a schema of their own: where the service has a role of its own,
-- that role owns this schema and the one of the jobs, whose tables come and go while it runs. Both are found without
-- naming their schema: src/foundation/database-roles.ts sets search_path too.

create schema if not exists projections;
create schema if not exists pgboss;

create table projection_checkpoints (
  name text primary key,
  version integer not null,
  position bigint not null,
  -- What the log holds at that position: a position alone does not tell that the log is the one it was taken from.
  event_id uuid,
  digest text,
  -- Counts its rebuilds: a reader that folded onto the rows before them has to read them again.
  generation integer not null default 0,
  -- The lease epoch of the projector that may move this row: one that lost its lease cannot.
  lease_epoch bigint not null default 0,
  state text not null default 'live' check (state in ('live', 'halted')),
  error text,
  updated_at timestamptz not null default now()
) with (fillfactor = 20);

create table leases (
  name text primary key,
  owner text not null,
  epoch bigint not null,
  expires_at timestamptz not null
) with (fillfactor = 20);

-- Events a read model that holds no money could not fold. They stay here until the projection is rebuilt.
create table parked_events (
  projection text not null,
  position bigint not null,
  stream text not null,
  error text not null,
  parked_at timestamptz not null default now(),
  primary key (projection, position)
);

-- Streams whose rows a read model of money no longer moves, from an event on that it cannot take. A rebuild folds them anew.
create table halted_streams (
  projection text not null,
  stream text not null,
  position bigint not null,
  error text not null,
  halted_at timestamptz not null default now(),
  primary key (projection, stream)
);

-- Which event log the read models of this database were folded from. Positions of one log mean nothing in another: a
-- process that is pointed elsewhere must not go on from them.
create table installation (
  one boolean primary key default true check (one),
  event_log text not null
);
