-- What stood at a checkpoint's position: a position alone does not tell that the log is the one it was taken from.
-- generation counts its rebuilds: whoever folded onto the rows before them has to read them anew.
alter table projection_checkpoints
  add column event_id uuid, add column digest text, add column generation integer not null default 0;

-- Streams whose rows a read model of money no longer moves, from an event on that it cannot take. A rebuild folds them anew.
create table halted_streams (
  projection text not null,
  stream text not null,
  position bigint not null,
  error text not null,
  halted_at timestamptz not null default now(),
  primary key (projection, stream)
);
