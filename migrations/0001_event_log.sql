-- The event log. One head row orders every append: it is locked for the length of the transaction, so positions are
-- contiguous and stand in commit order, and a reader that has seen position n has seen everything before it. A
-- sequence would not do: it hands out positions before the commit, and readers would step over the late ones.

create table log_head (
  one boolean primary key default true check (one),
  position bigint not null
) with (fillfactor = 10);

insert into log_head (position) values (0);

create table log_streams (
  id integer generated always as identity primary key,
  name text not null unique,
  revision bigint not null
) with (fillfactor = 70);

-- data and metadata are json, not jsonb: json keeps the exact bytes, which the hash chain covers.
create table log_events (
  position bigint primary key,
  stream_id integer not null,
  revision bigint not null,
  event_id uuid not null,
  recorded_at timestamptz not null,
  type text not null,
  data json not null,
  metadata json not null,
  unique (stream_id, revision)
);

revoke update, delete, truncate on log_events from public;
revoke update, delete, truncate on log_events from current_user;

-- Appends to many streams at once, each at its exact revision; a refused append does not hinder the others. Callers
-- name a stream at most once per batch.
--
-- p_expected is the stream's last revision, -1 for none. Events carry the number of their append (from 1) and their
-- revision. results[n] is the revision the nth append reached, or -2 - the stream's actual revision for a conflict.
--
-- The head is locked by a statement of its own: the statements after it get a fresh snapshot and so see all that was
-- committed before the lock was granted.
create function append_batch(
  p_streams text[], p_expected bigint[], p_counts integer[],
  p_appends integer[], p_revisions bigint[], p_event_ids text[], p_types text[], p_data text[], p_metadata text[]
) returns bigint[] language plpgsql as $$
declare
  v_head bigint;
  v_total bigint;
  v_ids integer[];
  v_results bigint[];
begin
  select position into v_head from log_head for update;

  with request as (
    select * from unnest(p_streams, p_expected, p_counts) with ordinality as r (name, expected, count, n)
  ), moved as (
    update log_streams s set revision = s.revision + r.count
    from request r where s.name = r.name and s.revision = r.expected and r.expected >= 0
    returning r.n, s.id
  ), born as (
    insert into log_streams (name, revision)
    select r.name, r.count - 1 from request r
    where r.expected = -1 and not exists (select from log_streams s where s.name = r.name)
    returning name, id
  )
  select array_agg(coalesce(m.id, b.id, 0) order by r.n),
         array_agg(r.expected + r.count order by r.n)
    into v_ids, v_results
    from request r left join moved m on m.n = r.n left join born b on b.name = r.name;

  if 0 = any (v_ids) then
    -- Already written at exactly this place with exactly these ids: the same append again, answered as the first time.
    select array_agg(
             case when v_ids[r.n] <> 0 then r.expected + r.count
                  when s.revision >= r.expected + r.count and not exists (
                    select from unnest(p_appends, p_revisions, p_event_ids) as e (append, revision, event_id)
                    left join log_events w on w.stream_id = s.id and w.revision = e.revision
                    where e.append = r.n and w.event_id is distinct from e.event_id::uuid)
                  then r.expected + r.count
                  else -2 - coalesce(s.revision, -1) end
             order by r.n)
      into v_results
      from unnest(p_streams, p_expected, p_counts) with ordinality as r (name, expected, count, n)
      left join log_streams s on s.name = r.name;
  end if;

  insert into log_events (position, stream_id, revision, event_id, recorded_at, type, data, metadata)
  select v_head + row_number() over (), v_ids[e.append], e.revision, e.event_id::uuid, clock_timestamp(), e.type,
         e.data::json, e.metadata::json
    from unnest(p_appends, p_revisions, p_event_ids, p_types, p_data, p_metadata)
      as e (append, revision, event_id, type, data, metadata)
   where v_ids[e.append] <> 0;
  get diagnostics v_total = row_count;

  if v_total > 0 then
    update log_head set position = v_head + v_total;
    perform pg_notify('log_appended', (v_head + v_total)::text);
  end if;
  return v_results;
end
$$;
