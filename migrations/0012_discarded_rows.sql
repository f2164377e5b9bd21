-- As in 0001_event_log.sql, except that an append fails if a trigger or rule that is not ours discards a row. Nothing is then written, and the
-- log works again when the trigger or rule is removed.
create or replace function append_batch(
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
  v_rows integer;
  v_stream integer;
  v_streams integer[] := '{}';
  v_results bigint[] := '{}';
begin
  -- Subscribers read 50 ms after a notification, so one notification every 40 ms is enough.
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
      if v_results[n] = -2 - p_expected[n] then
        raise exception 'log_streams discarded the new revision of %: a foreign trigger or rule changes what is written to the event log; remove it ("\d log_streams" in psql shows it)', p_streams[n];
      end if;
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
  get diagnostics v_rows = row_count;
  if v_rows <> cardinality(array_remove(v_streams, null)) then
    raise exception 'log_segments stored % of % rows: a foreign trigger or rule changes what is written to the event log; remove it ("\d log_segments" in psql shows it)',
      v_rows, cardinality(array_remove(v_streams, null));
  end if;

  if v_refused > 0 then
    update log_head set position = v_position + v_total - v_refused;
  end if;
  if v_notify then
    perform pg_notify('log_appended', '');
  end if;
  return v_results;
end
$$;

do $$
begin
  execute format(
    'alter function append_batch(text[], bigint[], integer[], integer[], integer[], bytea, bytea)
       set search_path = pg_catalog, %I, pg_temp', current_schema());
end
$$;
