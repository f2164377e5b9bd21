-- One installation key, wrapped by SECRET_KEY, is in the event log. Nothing is hashed or sealed under SECRET_KEY itself any more.
-- Not additive: 1.0 is the first release, and this release does not start over the data of an earlier one.
drop table secret_keys, secret_key_holders, secret_key_check;
