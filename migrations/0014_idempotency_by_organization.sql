-- From here on an Idempotency-Key's hash, its request's and the seal of its answer name the organization. Rows from before match
-- nobody any more. That a key was charged is in the ledger, so what is dropped here costs nobody anything.
delete from idempotent_calls;
