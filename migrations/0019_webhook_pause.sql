-- A webhook can be paused: messages are put down for it and wait. And its secret can be replaced: for a while messages carry the
-- signature of the former one too, so that a receiver misses none.
alter table webhook_endpoints
  add column paused_at timestamptz,
  -- Sealed like the secret itself.
  add column former_sealed_secret text,
  add column former_until timestamptz,
  add constraint webhook_endpoints_former check ((former_sealed_secret is null) = (former_until is null));
