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

create index profile_keys_epoch_key on profile_keys (split_part(sealed_key, '.', 1));
create index profile_dataset_epoch_key on profile_dataset (split_part(sealed, '.', 1));

-- What was sealed under SECRET_KEY opens no more: profiles are fetched again, calls are answered again free, the data set
-- has to be imported again.
delete from profile_keys;
delete from profile_dataset;
update idempotent_calls set answer = null where answer is not null;
