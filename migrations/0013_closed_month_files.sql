-- The files of closed months, as JSON Lines, in compressed parts (zstd). Derived from the event log and disposable: a file is served only
-- if it has the digest of the month's closing, and is stored again otherwise. It replaces closed_months, which remains only for processes
-- of release 1.0.0.
create table closed_month_files (
  organization_id text collate "C",
  month text collate "C",
  part int,
  lines bytea not null,
  primary key (organization_id, month, part)
);
alter table closed_month_files alter column lines set storage external;
