-- The files of closed months, as JSON Lines, in parts. Derived from the event log and disposable: a file is served only if it has the
-- digest of the month's closing, and is stored again otherwise.
-- Not additive: processes of the release before cannot write statements or close months until they are replaced; calls go on.
create table closed_months (
  organization_id text collate "C",
  month text collate "C",
  part int,
  lines text not null,
  primary key (organization_id, month, part)
);
drop table month_sums;
