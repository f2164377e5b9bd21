-- Which event log the read models of this database were folded from. Positions of one log mean nothing in another: a
-- process that is pointed elsewhere must not go on from them.

create table installation (
  one boolean primary key default true check (one),
  event_log text not null
);
