-- Answers kept for callers who send an Idempotency-Key. This is no read model: the first answer's body cannot be
-- derived from the event log. Losing it costs replays of bodies, never a second charge.

create table idempotent_calls (
  organization_id text not null,
  -- SHA-256 of the caller's key: keys may hold anything.
  key_hash bytea not null,
  body_hash bytea not null,
  -- Where the ledger stood when the call was first seen: its events cannot stand before.
  ledger_revision bigint not null,
  claimed_at timestamptz not null default now(),
  status smallint,
  answer text,
  headers json,
  answered_at timestamptz,
  primary key (organization_id, key_hash)
);

create index idempotent_calls_answered on idempotent_calls (answered_at) where answer is not null;
