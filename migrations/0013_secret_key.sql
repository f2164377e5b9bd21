-- What SECRET_KEY gives under a purpose of its own, so that a process started with another key notices: with it every issued
-- key would be refused, and nobody erased or blocked would be recognized. Nothing leads from here back to the key.

create table secret_key_check (
  one boolean primary key default true check (one),
  hash text not null
);
