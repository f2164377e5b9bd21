-- What the projector needs to fold the event log into read models. The read models' own tables are created by the
-- projections that write them, one set per version.

create table projection_checkpoints (
  name text primary key,
  version integer not null,
  position bigint not null,
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
