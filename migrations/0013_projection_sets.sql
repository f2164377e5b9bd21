-- Sets of rows beside the live ones: those being built, those kept for a rollback; and what became of rebuilds.

create table projection_rebuilds (
  rebuild_id text collate "C" primary key,
  projections text[] not null,
  actor text not null,
  reason text not null,
  state text not null default 'running' check (state in ('running', 'switched', 'cancelled', 'failed', 'declined')),
  -- How far it is, for whoever watches.
  position bigint not null default 0,
  target bigint not null default 0,
  events bigint not null default 0,
  elapsed_ms bigint not null default 0,
  -- Set by whoever wants it to end.
  cancelled_by text,
  error text,
  -- Figures of money that are not what the replaced rows said, the first of them.
  differences json not null default '[]',
  started_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  ended_at timestamptz
) with (fillfactor = 50);

create index projection_rebuilds_started on projection_rebuilds (started_at);

-- Tables `<name>_v<version>_next`: a rebuild that was killed goes on from here.
create table projection_builds (
  name text primary key,
  version integer not null,
  -- A digest of the code that folds: rows that other code began are begun again.
  fold text not null,
  position bigint not null default 0,
  event_id uuid,
  digest text,
  -- Events that could not be folded: [{position, stream, error}].
  aside json not null default '[]',
  indexed boolean not null default false,
  updated_at timestamptz not null default now()
) with (fillfactor = 50);

-- Tables `<name>_v<version>_kept`: the rows that the last switch replaced.
create table projection_kept (
  name text primary key,
  version integer not null,
  generation integer not null,
  position bigint not null,
  event_id uuid,
  digest text,
  aside json not null default '[]',
  kept_since timestamptz not null default now(),
  kept_until timestamptz not null
) with (fillfactor = 20);

-- A person decided that the projection goes on without the event; a rebuild that meets it again does not forget that.
alter table parked_events add column released_at timestamptz, add column released_by text, add column reason text;
