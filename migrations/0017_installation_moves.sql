-- An installation that was moved, and one that is being moved here: no process starts on either. There is no row where neither is so.
create table installation_moves (
  one boolean primary key default true check (one),
  -- The same in the database it leaves and in the one it comes to.
  move_id uuid not null,
  state text not null check (state in ('leaving', 'left', 'arriving')),
  -- For people: where the other one is, without secrets.
  elsewhere text not null,
  rows_copied boolean not null default false,
  since timestamptz not null default now()
);
