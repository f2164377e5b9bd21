-- How long calls took that were answered: how many fell between which bounds (src/call/latency-buckets.ts), by organization, capability and
-- hour of their arrival. Figures of operation, in no bill: counted by each process and added once a minute, kept for 35 days.
create table call_latency (
  organization_id text collate "C" not null,
  hour timestamptz not null,
  capability text collate "C" not null,
  -- Calls by bucket, the quickest first.
  counts int[] not null,
  primary key (organization_id, hour, capability)
) with (fillfactor = 70);
create index call_latency_hour on call_latency (hour);
