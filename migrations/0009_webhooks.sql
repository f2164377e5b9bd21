-- Webhooks are settings, and what is still to be sent is work: neither is derived from the event log, and a rebuild of read models touches neither.

create table webhook_endpoints (
  webhook_id text collate "C" primary key check (webhook_id ~ '^wh_[0-9A-HJKMNP-TV-Z]{26}$'),
  -- Null: the operator's own.
  organization_id text collate "C",
  url text not null check (length(url) <= 2048),
  events text[] not null check (cardinality(events) > 0),
  -- Under a key derived from the installation key: it is about no person, and lives as long as the webhook.
  sealed_secret text not null,
  -- The secret before it, sealed likewise: for a while messages carry its signature too, so that a receiver misses none.
  former_sealed_secret text,
  former_until timestamptz,
  -- What happened before is not told.
  created_at timestamptz not null default now(),
  -- Since when no attempt succeeded; null after one that did.
  failing_since timestamptz,
  disabled_at timestamptz,
  disabled_reason text,
  -- Since then messages wait.
  paused_at timestamptz,
  -- One process at a time sends to it, so that a slow one takes no more than one place.
  busy_until timestamptz,
  -- Messages that were not kept because too many were waiting.
  dropped bigint not null default 0,
  constraint webhook_endpoints_former check ((former_sealed_secret is null) = (former_until is null))
);
create index webhook_endpoints_organization on webhook_endpoints (organization_id);

create table webhook_deliveries (
  -- The header webhook-id: derived from the webhook and what it is told of, so that the same is never told under two ids.
  delivery_id text collate "C" primary key,
  webhook_id text collate "C" not null references webhook_endpoints on delete cascade,
  event text not null,
  -- Exactly what is sent and signed.
  payload text not null,
  state text not null default 'pending' check (state in ('pending', 'delivered', 'dead')),
  attempts int not null default 0,
  created_at timestamptz not null,
  next_attempt_at timestamptz not null,
  last_attempt_at timestamptz,
  last_result text
);
create index webhook_deliveries_due on webhook_deliveries (webhook_id, next_attempt_at) where state = 'pending';
create index webhook_deliveries_listed on webhook_deliveries (webhook_id, created_at);
create index webhook_deliveries_done on webhook_deliveries (created_at) where state <> 'pending';

-- How far the event log was read for webhooks. No row: from its beginning.
create table webhook_progress (
  one boolean primary key default true check (one),
  position bigint not null,
  event_id text not null,
  digest text not null
);

-- Each organization's balance at that place, for seeing when it falls below the threshold. For nothing else.
create table webhook_balances (
  organization_id text collate "C" primary key,
  balance_micro numeric not null,
  threshold_micro numeric
);
