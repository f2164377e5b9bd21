-- People who may sign in to the dashboard. Not derived from the event log: a password hash is no fact. The event log says what a user
-- may do and who is disabled; a row can take away rights and cannot give them.

create table users (
  name text primary key,
  password_phc text not null,
  -- A password that the system made opens only the form that replaces it.
  password_given boolean not null default false,
  role text not null check (role in ('admin', 'finance', 'operations', 'viewer', 'partner')),
  -- A partner's own organization.
  organization_id text collate "C",
  created_at timestamptz not null default now(),
  disabled_at timestamptz,
  check ((role = 'partner') = (organization_id is not null))
);

-- Who is signed in to the dashboard. Not derived from the event log: losing it costs a sign-in.

create table dashboard_sessions (
  -- SHA-256 of the session id: reading this table does not let anyone sign in.
  id_hash bytea primary key,
  user_name text not null references users (name) on update cascade on delete cascade,
  created_at timestamptz not null default now(),
  -- Fixed at sign-in; use does not extend it.
  expires_at timestamptz not null,
  -- The session ends at this time unless the person sends another request.
  idle_until timestamptz not null default now() + interval '60 minutes',
  -- False: signed in by an identity provider.
  by_password boolean not null default true
);

create index dashboard_sessions_expiry on dashboard_sessions (expires_at);
create index dashboard_sessions_user on dashboard_sessions (user_name);

-- A new password ends every session that was opened with the old one, however it was set.
create function end_dashboard_sessions() returns trigger language plpgsql as $$
begin
  delete from dashboard_sessions where user_name = new.name;
  return null;
end
$$;

create trigger users_new_password after update of password_phc on users
  for each row execute function end_dashboard_sessions();

-- A disabled user is signed out everywhere.
create trigger users_disabled after update of disabled_at on users
  for each row when (new.disabled_at is not null) execute function end_dashboard_sessions();

-- Proves a user's second factor. The event log says whether there is one, and which: without its row the user is refused, and a row
-- without its event means nothing.
create table user_second_factors (
  user_name text primary key references users (name) on update cascade on delete cascade,
  factor_id text collate "C" not null,
  -- The secret of RFC 6238, sealed for this factor.
  sealed_secret text not null,
  codes_id text collate "C" not null,
  -- SHA-256 of each recovery code, sealed for this list of them: writing here cannot add one. The event log says which were used.
  sealed_codes text not null,
  -- The step of the last accepted code: each code counts once (RFC 6238 §5.2).
  last_step bigint not null,
  -- Wrong codes of one day (UTC), typed on devices on which this factor was not proved before.
  wrong_on date,
  wrong int not null default 0,
  -- Wrong codes of that day typed on devices on which it was: so someone who guesses elsewhere does not use up the owner's attempts.
  wrong_where_proved int not null default 0
);

-- Forms of the dashboard that were sent: none takes effect twice. Not derived from the event log, and swept after a day: older forms are
-- refused.
create table dashboard_forms (
  -- SHA-256 of the person, the form and its token.
  id_hash bytea primary key,
  sent_at timestamptz not null default now()
);

create index dashboard_forms_sent on dashboard_forms (sent_at);

-- Sign-in attempts of the last minute, over all processes. Not derived from the event log: losing it gives everyone a minute of attempts
-- again. The columns, in this order, are those of rate-limiter-flexible.
create table dashboard_attempts (
  -- What is counted, and an HMAC of the person: people type passwords into the wrong field.
  key text collate "C" primary key,
  points int not null,
  -- Milliseconds since 1970.
  expire bigint
);

create index dashboard_attempts_expire on dashboard_attempts (expire);
