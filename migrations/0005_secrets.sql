-- What SECRET_KEY gives under a purpose of its own, so that a process started with another key notices: with it every issued
-- key would be refused, and no one erased or blocked would be recognized. Nothing leads from here back to the key.
create table secret_key_check (
  one boolean primary key default true check (one),
  hash text not null
);

-- The keys that values in this database are sealed under; the keys themselves are in KEY_DIR. Every sealed value begins with the id
-- of its key and a dot. A key named here that is not there is lost, and nothing is sealed until that is settled.
create table epoch_keys (
  key_id text collate "C" primary key,
  epoch int not null,
  created_at timestamptz not null default now(),
  destroyed_at timestamptz
);
-- Where processes have directories of their own by mistake, only one of them seals.
create unique index epoch_keys_live on epoch_keys (epoch) where destroyed_at is null;
