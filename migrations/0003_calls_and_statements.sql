-- Answers kept for callers who send an Idempotency-Key. This is no read model: the first answer's body cannot be
-- derived from the event log. Losing it costs replays of bodies, never a second charge.

create table idempotent_calls (
  organization_id text not null,
  -- Keyed hashes of the caller's key and of its request, both naming the organization: plain ones could be guessed at.
  key_hash bytea not null,
  body_hash bytea not null,
  -- Where the ledger holds the call that was paid for under the key. The statement's rows tell it as well, but they are disposable: one
  -- that is missing must not charge anyone again.
  paid_revision bigint,
  claimed_at timestamptz not null default now(),
  status smallint,
  answer text,
  answered_at timestamptz,
  primary key (organization_id, key_hash)
);

create index idempotent_calls_answered on idempotent_calls (answered_at) where answer is not null;

-- The files of closed months, as JSON Lines, in parts. Derived from the event log and disposable: a file is served only if it has the
-- digest of the month's closing, and is stored again otherwise.
create table closed_months (
  organization_id text collate "C",
  month text collate "C",
  part int,
  lines text not null,
  primary key (organization_id, month, part)
);
