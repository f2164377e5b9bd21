-- Each append changed the row of the log's head and the row of its stream. While any transaction is open, such as that of a backup, PostgreSQL keeps
-- every version of a changed row, and each append had to read them all. Now log_segments shows where the log and its streams end, and most appends
-- change neither row. The rows still show that the last rows of log_segments were deleted, or that only a part of the log was restored.
--
-- Not additive: log_head and log_streams become views with the columns that release 1.0.0 reads, so its processes keep running.

-- revision: one that the stream had reached. Of a ledger or profile, it can be ten seconds old; of any other stream, it is the last one.
alter table log_streams rename to log_stream_marks;

create view log_streams as
  select id, name,
         greatest(revision, (select last_revision from log_segments where stream_id = id order by last_revision desc limit 1)) as revision
    from log_stream_marks;

-- position: one that the log had reached, at most ten seconds before its end. An append locks the row until it is committed, so positions are in the
-- order of commits.
alter table log_head rename to log_mark;
alter table log_mark rename column notified_at to noted_at;

create view log_head as
  select one, greatest(position, coalesce((select last_position from log_segments order by last_position desc limit 1), 0)) as position
    from log_mark;

-- As append_batch in 0001_event_log.sql and 0012_discarded_rows.sql, with these differences:
--
-- The last element is the position of the end of the log. The result is null, and nothing is written, if the log ends before its mark, or if no row ends
-- at p_seen with events that have the SHA-256 p_seen_hash. Both can be null.
--
-- A stream that is named twice would get two events with one revision, so it is an error.
--
-- The revisions of log_stream_marks are exact except for ledgers and profiles, so that a deleted revocation of a key is noticed.
create function append_events(
  p_streams text[], p_expected bigint[], p_counts integer[], p_bytes integer[], p_stored integer[], p_ids bytea, p_events bytea,
  p_seen bigint, p_seen_hash bytea
) returns bigint[] language plpgsql security definer
-- A plan kept from when a table was small must not look through all of it later, and planning takes longer than an append.
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_now timestamptz;
  v_mark bigint;
  v_noted_at timestamptz;
  v_hash bytea;
  v_end bigint;
  v_recorded_at timestamptz;
  v_stream integer;
  v_revision bigint;
  v_stream_at timestamptz;
  v_before integer := 0;
  v_rows integer;
  v_written integer := 0;
  v_events integer := 0;
  v_streams integer[] := '{}';
  v_results bigint[] := '{}';
begin
  -- With any other isolation level, the statements after the lock would not see what was committed while it was awaited.
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'append_events needs the isolation level read committed, not %', current_setting('transaction_isolation');
  end if;
  select position, noted_at into v_mark, v_noted_at from log_mark where one for update;
  v_now := clock_timestamp();
  select last_position, recorded_at, case when last_position = p_seen then sha256(events) end
    into v_end, v_recorded_at, v_hash from log_segments order by last_position desc limit 1;
  v_end := coalesce(v_end, 0);
  if p_seen < v_end then
    select sha256(events) into v_hash from log_segments where last_position = p_seen;
  end if;
  if v_mark is null or v_mark > v_end or (p_seen is not null and v_hash is distinct from p_seen_hash) then
    return null;
  end if;

  for n in 1 .. cardinality(p_streams) loop
    select s.id, greatest(s.revision, g.last_revision), g.recorded_at into v_stream, v_revision, v_stream_at
      from log_stream_marks s
      left join lateral (select last_revision, recorded_at from log_segments where stream_id = s.id order by last_revision desc limit 1) g on true
     where s.name = p_streams[n];
    v_rows := 1;
    if v_stream is null and p_expected[n] = -1 then
      insert into log_stream_marks (name, revision) values (p_streams[n], p_counts[n] - 1) returning id into v_stream;
      get diagnostics v_rows = row_count;
    elsif v_stream = any (v_streams) then
      raise exception 'a batch names each stream once';
    elsif v_revision is distinct from p_expected[n] then
      v_stream := null;
      v_results := v_results || coalesce(
        append_again(p_streams[n], p_expected[n], p_counts[n], substring(p_ids from 16 * v_before + 1 for 16 * p_counts[n])), -1);
    elsif split_part(p_streams[n], '-', 1) not in ('ledger', 'profile')
          or date_bin('10 s', v_stream_at, 'epoch') is distinct from date_bin('10 s', v_now, 'epoch') then
      update log_stream_marks set revision = v_revision + p_counts[n] where id = v_stream;
      get diagnostics v_rows = row_count;
    end if;
    if v_rows <> 1 then
      raise exception 'log_stream_marks discarded the revision of %: a foreign trigger or rule changes what is written to the event log; remove it ("\d log_stream_marks" in psql shows it)',
        p_streams[n];
    end if;
    v_streams := v_streams || v_stream;
    if v_stream is not null then
      v_results := v_results || p_expected[n] + p_counts[n];
      v_written := v_written + 1;
      v_events := v_events + p_counts[n];
    end if;
    v_before := v_before + p_counts[n];
  end loop;

  insert into log_segments (last_position, last_revision, stream_id, count, bytes, recorded_at, family, ids, events)
  select v_end + sum(count) over (order by n), expected + count, stream, count, bytes, v_now, split_part(name, '-', 1),
         substring(p_ids from (16 * ids_before + 1)::integer for 16 * count),
         substring(p_events from stored_before::integer + 1 for stored)
    from (select *, sum(count) over (order by n) - count as ids_before, sum(stored) over (order by n) - stored as stored_before
            from unnest(p_streams, p_expected, p_counts, p_bytes, p_stored, v_streams)
                 with ordinality as a (name, expected, count, bytes, stored, stream, n)) append
   where stream is not null;
  get diagnostics v_rows = row_count;
  if v_rows <> v_written then
    raise exception 'log_segments stored % of % rows: a foreign trigger or rule changes what is written to the event log; remove it ("\d log_segments" in psql shows it)',
      v_rows, v_written;
  end if;

  if v_written > 0 then
    if v_noted_at not between v_now - interval '10 s' and v_now then
      update log_mark set position = v_end + v_events, noted_at = v_now;
    end if;
    -- Subscribers read 50 ms after a notification, so one notification every 40 ms is enough.
    if date_bin('40 ms', v_recorded_at, 'epoch') is distinct from date_bin('40 ms', v_now, 'epoch') then
      perform pg_notify('log_appended', '');
    end if;
  end if;
  return v_results || (v_end + v_events);
end
$$;

revoke execute on function append_events(text[], bigint[], integer[], integer[], integer[], bytea, bytea, bigint, bytea) from public;

-- For processes of release 1.0.0, which make the comparisons before they call it.
create or replace function append_batch(
  p_streams text[], p_expected bigint[], p_counts integer[], p_bytes integer[], p_stored integer[], p_ids bytea, p_events bytea
) returns bigint[] language plpgsql security definer as $$
declare
  v_results bigint[] := append_events(p_streams, p_expected, p_counts, p_bytes, p_stored, p_ids, p_events, null, null);
begin
  if v_results is null then
    raise exception 'the event log ends before its mark';
  end if;
  return v_results[1:cardinality(p_streams)];
end
$$;

do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select unnest(array['append_events(text[], bigint[], integer[], integer[], integer[], bytea, bytea, bigint, bytea)',
                        'append_batch(text[], bigint[], integer[], integer[], integer[], bytea, bytea)']::regprocedure[])
  loop
    execute format('alter function %s set search_path = pg_catalog, %I, pg_temp', v_function, current_schema());
  end loop;
end
$$;
