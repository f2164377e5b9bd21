-- What a later look at a mailbox found out, for the next call about the same address. The address itself is not here.
create table mailbox_checks (
  address_hmac text primary key,
  evidence text not null,
  checked_at timestamptz not null
);
create index mailbox_checks_checked_at on mailbox_checks (checked_at);
