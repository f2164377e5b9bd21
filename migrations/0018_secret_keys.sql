-- Every SECRET_KEY the installation has had: of each what it gives under a purpose of its own. Nothing leads from here back to a key.
-- `secret_key_check` stays for processes of the release before, which know one key: after the first rotation no key fits it.
create table secret_keys (
  -- In which order they came into use; the first is that of everything which does not name its key.
  number int primary key,
  -- The beginning of the SHA-256 of the hash: what people and events call the key.
  key_id text collate "C" not null unique,
  hash text not null,
  -- `current`: everything new is made under it. `needed`: every process must have it. `left`: nothing depends on it any more.
  state text not null check (state in ('current', 'needed', 'left')),
  in_use_from timestamptz not null,
  -- The last event of the log when it came into use; null: from the beginning. Positions are others in another log: where another event,
  -- or none, is at this one, it says nothing.
  position_from bigint,
  event_from text,
  -- The last one when every process had turned to the next key; null: not yet.
  position_until bigint,
  event_until text,
  -- What depends on it, for people, as it was counted last.
  under jsonb not null default '[]',
  -- The event of its coming into use is in the event log.
  recorded boolean not null,
  -- What can be made anew under it was.
  renewed boolean not null
);
create unique index secret_keys_current on secret_keys ((state = 'current')) where state = 'current';
insert into secret_keys (number, key_id, hash, state, in_use_from, recorded, renewed)
select 1, left(encode(sha256(hash::bytea), 'hex'), 12), hash, 'current', '-infinity', true, true from secret_key_check;

-- Which keys each process has, and under which it works: another key comes into use only when all of them have it.
create table secret_key_holders (
  holder text collate "C" primary key,
  host text not null,
  pid int not null,
  key_ids text[] not null,
  current_key_id text not null,
  seen_at timestamptz not null default now()
);
