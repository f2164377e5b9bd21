-- Latency by organization and the state of mail servers are no longer kept in tables: metrics show both.
-- Not additive: processes of the release before log that they cannot write these figures and continue to answer calls; their usage
-- page and their page of mail servers fail until they are replaced.
drop table call_latency, mailbox_servers, mailbox_closings;
