-- The operator's own people: what the dataset provider answers from. Not derived from the event log; operators import
-- it and can import it again. Personal data in the clear by its nature: erasing a person deletes the row.

create table profile_dataset (
  -- Canonical, see identifier.ts. One row answers for one id: who takes over an id takes it from its former holder.
  lid text collate "C" primary key,
  -- The numeric id as text: it exceeds 2^53.
  urn text collate "C" unique check (urn ~ '^[1-9][0-9]{0,18}$'),
  -- json, not jsonb: the row is only ever read whole. Null: the source says that this person is gone.
  data json,
  imported_at timestamptz not null
);
