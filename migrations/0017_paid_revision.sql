-- Where the ledger holds what was paid under the key. The statement's rows tell it as well, but they are disposable: one that is
-- missing must not charge anybody again.
alter table idempotent_calls add column paid_revision bigint;
