-- The operator's own people: what the dataset provider answers from. Not derived from the event log; operators import
-- it and can import it again. People are found by keyed HMACs of their identifiers, and what is known of them rests
-- sealed: whoever is erased leaves no readable trace, neither in these pages nor in the database's own log.
create table profile_dataset (
  -- One row answers for one id: who takes over an id takes it from its former holder.
  lid_hmac text collate "C" primary key,
  urn_hmac text collate "C" unique,
  sealed text not null,
  imported_at timestamptz not null
);
create index profile_dataset_epoch_key on profile_dataset (split_part(sealed, '.', 1));

-- The keys of sealed profile payloads. Deleting one makes every copy of its payload unreadable, the event log's included.
-- They are sealed themselves, under a key of epoch_keys.
create table profile_keys (
  key_id text primary key,
  subject_id text not null,
  sealed_key text not null,
  created_at timestamptz not null,
  -- The identifiers the payload is known by, as keyed HMACs: an erasure finds it before the event log tells of it.
  hmacs text[] not null
);
create index profile_keys_subject_id on profile_keys (subject_id);
create index profile_keys_hmacs on profile_keys using gin (hmacs);
create index profile_keys_created_at on profile_keys (created_at);
create index profile_keys_epoch_key on profile_keys (split_part(sealed_key, '.', 1));

-- Identifiers of people who asked to be forgotten, as keyed HMACs. They are never fetched, served or imported again.
create table profile_suppressions (
  hmac text primary key,
  suppressed_at timestamptz not null
);

-- Who is fetching whom, so that processes do not pay for the same answer twice. A holder that died is outlived.
create table profile_fetches (
  claim text primary key,
  holder text not null,
  until timestamptz not null
);
