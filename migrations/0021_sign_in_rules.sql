-- A password that the system made opens nothing but the form that replaces it. Those of before may be either: they stay as they are.
alter table users add column password_given boolean not null default false;

-- Who came by a provider of identities did not come by the password.
alter table dashboard_sessions add column by_password boolean not null default true;

-- A session ends then, unless the person asks for something before.
alter table dashboard_sessions add column idle_until timestamptz not null default now() + interval '60 minutes';
