-- From here on requests and Idempotency-Keys are remembered by keyed hashes: plain ones could be guessed at. That a key was
-- charged stands in the ledger, so what is dropped here costs nobody anything.
delete from idempotent_calls;
alter table idempotent_calls drop column ledger_revision, drop column headers;
