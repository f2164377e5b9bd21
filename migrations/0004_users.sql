-- People who may sign in to the dashboard. Not derived from the event log: a password hash is nobody's fact.

create table users (
  name text primary key,
  password_phc text not null,
  created_at timestamptz not null default now()
);
