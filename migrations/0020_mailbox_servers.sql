-- What each process knows of the mail servers it asks, for people to look at: written every few seconds, read by no check. Emptied, it
-- fills itself.
create table mailbox_servers (
  -- One run of one process: a ULID.
  reporter text collate "C" not null check (reporter ~ '^[0-9A-Z]{26}$'),
  -- The address that is dialled.
  address text collate "C" not null check (length(address) <= 45),
  -- Its name, as the domains asked for have it.
  exchange text not null check (length(exchange) <= 253),
  -- Some of the domains it was asked about lately. Never a local part.
  domains text[] not null,
  -- The process, for people.
  host text not null check (length(host) <= 255),
  pid integer not null,
  report json not null,
  reported_at timestamptz not null default now(),
  primary key (reporter, address)
);
create index mailbox_servers_reported_at on mailbox_servers (reported_at);
