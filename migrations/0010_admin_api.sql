-- Requests of the admin API that carried an Idempotency-Key, of the last day. Not derived from the event log: losing it lets a request be
-- made again that was made before.
create table admin_requests (
  -- SHA-256 of the person and the key.
  id_hash bytea primary key,
  -- SHA-256 of what was asked: the same key with another request is refused.
  asked_hash bytea not null,
  -- Without secrets, which are shown once. Null: it is under way, or its outcome is unknown.
  answer text,
  sent_at timestamptz not null default now()
);

create index admin_requests_sent on admin_requests (sent_at);
