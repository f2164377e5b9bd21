-- The event log. One head row orders every append: it is locked for the length of the transaction, so positions are
-- contiguous and in commit order, and a reader that has seen position n has seen everything before it. A sequence would
-- not do: it hands out positions before the commit, and readers would step over the late ones.

create table log_head (
  one boolean primary key default true check (one),
  position bigint not null,
  -- When subscribers were last notified; see append_batch.
  notified_at timestamptz not null default now()
) with (fillfactor = 10);

insert into log_head (position) values (0);

create table log_streams (
  id integer generated always as identity primary key,
  -- Collated by bytes, so that the index finds the names that begin with a prefix.
  name text collate "C" not null unique,
  revision bigint not null
) with (fillfactor = 70);

-- One row per append. Its events have the revisions and the positions up to the row's last ones, without holes.
create table log_segments (
  last_position bigint primary key,
  last_revision bigint not null,
  stream_id integer not null,
  count integer not null check (count > 0),
  -- Length of the events before compression. It bounds what a reader asks for.
  bytes integer not null,
  recorded_at timestamptz not null,
  -- The stream's name up to its first hyphen: a reader of a few kinds of streams leaves out the others by it.
  family text collate "C" not null,
  -- 16 bytes for each event's id. They lie apart so that an append that is sent again is recognized without opening the events.
  ids bytea not null,
  -- Type, data and metadata of each event, compressed as in src/event-log/postgres/segment.ts.
  events bytea not null,
  unique (stream_id, last_revision)
);
-- PostgreSQL does not try to compress events that are compressed already, or ids, which are short.
alter table log_segments alter column ids set storage external, alter column events set storage external;

-- Every process follows API keys, price books and pixel rules. Here it finds them without a look at what the calls record, which is
-- nearly all of the log: those two families are left out.
create index log_segments_quiet on log_segments (last_position) where family not in ('ledger', 'profile');

revoke update, delete, truncate on log_segments from public;
revoke update, delete, truncate on log_segments from current_user;

-- The answer to an append that was not written: 2^52 and the revision it reached before, if the same ids follow its expected
-- revision, in however many segments; else -2 - the stream's actual revision.
create function append_again(p_stream text, p_expected bigint, p_count integer, p_ids bytea)
returns bigint language sql stable as $$
  select case when p_ids = (
           select substring(string_agg(g.ids, '' order by g.last_revision)
                            from (16 * (p_expected + 1 - min(g.last_revision - g.count + 1)) + 1)::integer for 16 * p_count)
             from (select ids, last_revision, count from log_segments
                    where stream_id = s.id and last_revision > p_expected order by last_revision limit p_count) g)
         then (1::bigint << 52) + p_expected + p_count else -2 - coalesce(s.revision, -1) end
    from (select) one left join log_streams s on s.name = p_stream
$$;

-- Appends to many streams at once, each at its exact revision; a refused append does not hinder the others. One element
-- per append: the stream, which a batch names once; its last revision, -1 for none; how many events; what they take, open
-- and as they are stored. p_ids and p_events hold the ids and the events of one append after the other.
--
-- results[n] is the revision the nth append reached; 2^52 more where it had been written before; or -2 - the stream's actual
-- revision for a conflict.
--
-- The first statement locks the head; the statements after it get a fresh snapshot and so see all that was committed
-- before the lock was granted.
--
-- This is the one way to write the event log: it appends, by the rights of its owner, and nothing else is granted to
-- anyone. Its search_path is fixed below, so that a caller cannot put tables of its own in the place of these. A later file that
-- replaces the function has to say all of this again. src/foundation/database-roles.ts grants it to the role of the service.
create function append_batch(
  p_streams text[], p_expected bigint[], p_counts integer[], p_bytes integer[], p_stored integer[], p_ids bytea, p_events bytea
) returns bigint[] language plpgsql security definer
-- A plan kept from when a table was small must not look through all of it later.
set enable_seqscan = off
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_total integer := (select sum(count) from unnest(p_counts) count);
  v_position bigint;
  v_notify boolean;
  v_before integer := 0;
  v_refused integer := 0;
  v_stream integer;
  v_streams integer[] := '{}';
  v_results bigint[] := '{}';
begin
  -- Subscribers wait 50 ms after a notification before they look, so one every 40 ms tells them everything.
  update log_head
     set position = position + v_total,
         notified_at = case when notified_at < v_now - interval '40 ms' then v_now else notified_at end
  returning position - v_total, notified_at = v_now into v_position, v_notify;

  for n in 1 .. cardinality(p_streams) loop
    if p_expected[n] >= 0 then
      update log_streams set revision = revision + p_counts[n]
       where name = p_streams[n] and revision = p_expected[n] returning id into v_stream;
    else
      insert into log_streams (name, revision) values (p_streams[n], p_counts[n] - 1)
      on conflict (name) do nothing returning id into v_stream;
    end if;
    v_streams := v_streams || v_stream;
    if v_stream is not null then
      v_results := v_results || p_expected[n] + p_counts[n];
    else
      v_refused := v_refused + p_counts[n];
      v_results := v_results
        || append_again(p_streams[n], p_expected[n], p_counts[n], substring(p_ids from 16 * v_before + 1 for 16 * p_counts[n]));
    end if;
    v_before := v_before + p_counts[n];
  end loop;

  insert into log_segments (last_position, last_revision, stream_id, count, bytes, recorded_at, family, ids, events)
  select v_position + sum(count) over (order by n), expected + count, stream, count, bytes, v_now, split_part(name, '-', 1),
         substring(p_ids from (16 * ids_before + 1)::integer for 16 * count),
         substring(p_events from stored_before::integer + 1 for stored)
    from (select *, sum(count) over (order by n) - count as ids_before, sum(stored) over (order by n) - stored as stored_before
            from unnest(p_streams, p_expected, p_counts, p_bytes, p_stored, v_streams)
                 with ordinality as a (name, expected, count, bytes, stored, stream, n)) append
   where stream is not null;

  if v_refused > 0 then
    update log_head set position = v_position + v_total - v_refused;
  end if;
  if v_notify then
    perform pg_notify('log_appended', '');
  end if;
  return v_results;
end
$$;

revoke execute on function append_again(text, bigint, integer, bytea) from public;
revoke execute on function append_batch(text[], bigint[], integer[], integer[], integer[], bytea, bytea) from public;
do $$
begin
  execute format(
    'alter function append_batch(text[], bigint[], integer[], integer[], integer[], bytea, bytea)
       set search_path = pg_catalog, %I, pg_temp', current_schema());
end
$$;

-- The Merkle tree over the event log in tiles of 256 hashes (src/event-log/tree). Derived from the log and disposable: emptied, the next
-- checkpoint fills it again. Nothing believes it without comparing the root it gives with a signed checkpoint.

-- How far the tiles go.
create table log_tree (
  one boolean primary key default true check (one),
  origin text not null,
  size bigint not null,
  -- Of the event of the last leaf, and what the log holds there; 0 and null before the first event.
  position bigint not null,
  event_id uuid,
  digest text
);

create table log_tree_tiles (
  level smallint not null,
  index bigint not null,
  -- 32 bytes each: of leaves on level 0, of tiles of the level below on the others. The last tile of a level has fewer than 256.
  hashes bytea not null,
  -- Level 0 only: the positions of the events of its leaves, 8 bytes each, and the first of them.
  first_position bigint,
  positions bytea,
  primary key (level, index)
);
-- Hashes cannot be compressed.
alter table log_tree_tiles alter column hashes set storage external;

-- An event's leaf is found by its position.
create index log_tree_tiles_position on log_tree_tiles (first_position) where level = 0;
