-- Breakers of mail servers that people closed: what each process, which has its breakers in memory, looks for every few seconds. What was
-- asked is in the event log; here it is forgotten after a day.
create table mailbox_closings (
  -- The event's id.
  closing_id uuid primary key,
  -- The addresses that are dialled.
  addresses text[] not null,
  asked_at timestamptz not null default now()
);
create index mailbox_closings_asked_at on mailbox_closings (asked_at);
