-- What the months of a ledger come to up to a revision: where the next statement begins to read. Derived from the event log, sealed, and
-- disposable: emptied, the next statements read whole ledgers again.
create table month_sums (
  organization_id text collate "C" primary key,
  revision bigint not null,
  -- Of the event at that revision.
  digest text not null,
  sums text not null,
  seal text not null,
  kept_at timestamptz not null default now()
);
