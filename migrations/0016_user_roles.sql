-- What a user may do, and who may no more. The event log says both; a row can take away, and cannot give.

alter table users
  -- Users from before there were roles could do everything.
  add column role text not null default 'admin' check (role in ('admin', 'finance', 'operations', 'viewer', 'partner')),
  -- A partner's own organization.
  add column organization_id text collate "C",
  add column disabled_at timestamptz,
  add check ((role = 'partner') = (organization_id is not null));
-- Not additive: a process of the release before can make no user any more, for it names no role. It does so only where a person asks it to, and
-- says that it failed.
alter table users alter column role drop default;

-- Whoever is disabled is signed in nowhere from then on.
create trigger users_disabled after update of disabled_at on users
  for each row when (new.disabled_at is not null) execute function end_dashboard_sessions();
