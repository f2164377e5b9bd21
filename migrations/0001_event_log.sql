-- The event log. One head row orders every append: it is locked for the length of the transaction, so positions are
-- contiguous and stand in commit order, and a reader that has seen position n has seen everything before it. A
-- sequence would not do: it hands out positions before the commit, and readers would step over the late ones.

create table log_head (
  one boolean primary key default true check (one),
  position bigint not null,
  -- When subscribers were last told; see append_batch.
  notified_at timestamptz not null default now()
) with (fillfactor = 10);

insert into log_head (position) values (0);

create table log_streams (
  id integer generated always as identity primary key,
  name text not null unique,
  revision bigint not null
) with (fillfactor = 70);

-- data and metadata are JSON texts. Not jsonb, which re-orders members: the hash chain covers the exact bytes. Not json
-- either, which parses on every insert only to forget it: whoever reads casts.
create table log_events (
  position bigint primary key,
  stream_id integer not null,
  revision bigint not null,
  event_id uuid not null,
  recorded_at timestamptz not null,
  type text not null,
  data text not null,
  metadata text not null,
  unique (stream_id, revision)
);

revoke update, delete, truncate on log_events from public;
revoke update, delete, truncate on log_events from current_user;

-- Appends to many streams at once, each at its exact revision; a refused append does not hinder the others. Callers
-- name a stream at most once per batch.
--
-- p_expected is the stream's last revision, -1 for none; p_counts how many events each append holds; p_starts how many
-- events stand before it in the batch; p_appends the number of the append (from 1) each event belongs to. Ids, types,
-- data and metadata of the events are one text each, separated by U+001E, which JSON cannot hold unescaped: splitting
-- it costs a fraction of parsing an array.
--
-- results[n] is the revision the nth append reached, or -2 - the stream's actual revision for a conflict.
--
-- The first statement locks the head; the statements after it get a fresh snapshot and so see all that was committed
-- before the lock was granted.
create function append_batch(
  p_streams text[], p_expected bigint[], p_counts integer[], p_starts integer[], p_appends integer[],
  p_ids text, p_types text, p_data text, p_metadata text
) returns bigint[] language plpgsql as $$
declare
  v_total integer := cardinality(p_appends);
  v_now timestamptz := clock_timestamp();
  v_head bigint;
  v_notify boolean;
  v_streams integer[];
  v_refused integer := 0;
  v_results bigint[];
begin
  -- Subscribers wait 50 ms after a notification before they look, so one every 40 ms tells them everything.
  update log_head
     set position = position + v_total,
         notified_at = case when notified_at < v_now - interval '40 ms' then v_now else notified_at end
  returning position - v_total, notified_at = v_now into v_head, v_notify;

  if cardinality(p_streams) = 1 then
    -- The busy case, one hot ledger, spelled out: it costs a third of the general one.
    if p_expected[1] >= 0 then
      update log_streams set revision = revision + v_total
       where name = p_streams[1] and revision = p_expected[1]
      returning array[id] into v_streams;
    else
      insert into log_streams (name, revision) values (p_streams[1], v_total - 1)
      on conflict (name) do nothing returning array[id] into v_streams;
    end if;
    v_streams := coalesce(v_streams, '{0}');
    v_results := array[p_expected[1] + v_total];
  else
    with request as (
      select * from unnest(p_streams, p_expected, p_counts) with ordinality as r (name, expected, count, n)
    ), moved as (
      update log_streams s set revision = s.revision + r.count
      from request r where s.name = r.name and s.revision = r.expected and r.expected >= 0
      returning r.n, s.id
    ), born as (
      insert into log_streams (name, revision)
      select r.name, r.count - 1 from request r where r.expected = -1
      on conflict (name) do nothing
      returning name, id
    )
    select array_agg(coalesce(m.id, b.id, 0) order by r.n), array_agg(r.expected + r.count order by r.n)
      into v_streams, v_results
      from request r left join moved m on m.n = r.n left join born b on b.name = r.name;
  end if;

  if 0 = any (v_streams) then
    -- Refused, unless the very same events stand at the very same place: then it is the same append again, answered as
    -- the first time.
    select array_agg(
             case when v_streams[r.n] <> 0 then r.expected + r.count
                  when s.revision >= r.expected + r.count and not exists (
                    select from unnest(p_appends, string_to_array(p_ids, chr(30))) with ordinality as e (append, id, n)
                    left join log_events w on w.stream_id = s.id and w.revision = r.expected + e.n - p_starts[e.append]
                    where e.append = r.n and w.event_id is distinct from e.id::uuid)
                  then r.expected + r.count
                  else -2 - coalesce(s.revision, -1) end
             order by r.n),
           sum(case when v_streams[r.n] = 0 then r.count else 0 end)
      into v_results, v_refused
      from unnest(p_streams, p_expected, p_counts) with ordinality as r (name, expected, count, n)
      left join log_streams s on s.name = r.name;
    update log_head set position = v_head + v_total - v_refused;
  end if;

  if v_refused = 0 then
    insert into log_events (position, stream_id, revision, event_id, recorded_at, type, data, metadata)
    select v_head + n, v_streams[append], p_expected[append] + n - p_starts[append], id::uuid, v_now, type, data, metadata
      from (select generate_series(1, v_total) as n, unnest(p_appends) as append,
                   unnest(string_to_array(p_ids, chr(30))) as id, unnest(string_to_array(p_types, chr(30))) as type,
                   unnest(string_to_array(p_data, chr(30))) as data,
                   unnest(string_to_array(p_metadata, chr(30))) as metadata) e;
  elsif v_refused < v_total then
    insert into log_events (position, stream_id, revision, event_id, recorded_at, type, data, metadata)
    select v_head + row_number() over (order by n), v_streams[append], p_expected[append] + n - p_starts[append],
           id::uuid, v_now, type, data, metadata
      from (select generate_series(1, v_total) as n, unnest(p_appends) as append,
                   unnest(string_to_array(p_ids, chr(30))) as id, unnest(string_to_array(p_types, chr(30))) as type,
                   unnest(string_to_array(p_data, chr(30))) as data,
                   unnest(string_to_array(p_metadata, chr(30))) as metadata) e
     where v_streams[append] <> 0;
  end if;

  if v_notify then
    perform pg_notify('log_appended', '');
  end if;
  return v_results;
end
$$;

-- The one way to write the event log: it appends, by the rights of its owner, and nothing else is granted to anyone. Its
-- search_path is fixed, so that a caller cannot put tables of its own in the place of these. A later file that replaces
-- the function has to say all of this again. src/foundation/database-roles.ts grants it to the role of the service.
alter function append_batch(text[], bigint[], integer[], integer[], integer[], text, text, text, text) security definer;
revoke execute on function append_batch(text[], bigint[], integer[], integer[], integer[], text, text, text, text) from public;
do $$
begin
  execute format(
    'alter function append_batch(text[], bigint[], integer[], integer[], integer[], text, text, text, text)
       set search_path = pg_catalog, %I, pg_temp', current_schema());
end
$$;
