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
