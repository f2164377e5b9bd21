-- Forms of the dashboard that were sent: none does twice what it says. Not derived from the event log, and swept after a day:
-- no form is taken that is older.

create table dashboard_forms (
  -- SHA-256 of the person, the form and its token.
  id_hash bytea primary key,
  sent_at timestamptz not null default now()
);

create index dashboard_forms_sent on dashboard_forms (sent_at);
