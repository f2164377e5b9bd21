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
  -- A person decided that the projection continues without the event. A rebuild that meets it again remembers that.
  released_at timestamptz,
  released_by text,
  reason text,
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

-- Rebuilds, and what became of them.
create table projection_rebuilds (
  rebuild_id text collate "C" primary key,
  projections text[] not null,
  actor text not null,
  reason text not null,
  state text not null default 'running' check (state in ('running', 'switched', 'cancelled', 'failed', 'declined')),
  -- How far it is, for people.
  position bigint not null default 0,
  target bigint not null default 0,
  events bigint not null default 0,
  elapsed_ms bigint not null default 0,
  -- The person who cancelled it.
  cancelled_by text,
  error text,
  -- The first amounts that differ from those of the replaced rows.
  differences json not null default '[]',
  started_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  ended_at timestamptz
) with (fillfactor = 50);

create index projection_rebuilds_started on projection_rebuilds (started_at);

-- Tables `<name>_v<version>_next`: an interrupted rebuild continues from here.
create table projection_builds (
  name text primary key,
  version integer not null,
  -- Digest of the code that folds. If it differs, the build starts over.
  fold text not null,
  position bigint not null default 0,
  event_id uuid,
  digest text,
  -- Events that could not be folded: [{position, stream, error}].
  aside json not null default '[]',
  indexed boolean not null default false,
  updated_at timestamptz not null default now()
) with (fillfactor = 50);
