-- People who may sign in to the dashboard. Not derived from the event log: a password hash is no fact.

create table users (
  name text primary key,
  password_phc text not null,
  created_at timestamptz not null default now()
);

-- Who is signed in to the dashboard. Not derived from the event log: losing it costs a sign-in.

create table dashboard_sessions (
  -- SHA-256 of the session id: whoever reads this table cannot sign in with it.
  id_hash bytea primary key,
  user_name text not null references users (name) on update cascade on delete cascade,
  created_at timestamptz not null default now(),
  -- Fixed at sign-in; use does not extend it.
  expires_at timestamptz not null
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
