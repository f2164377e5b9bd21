-- Not additive: 1.0 is the first release. A key is used up by one charge: there are no further attempts under it.
alter table idempotent_calls drop column paid_attempt;
