-- Hits of the pixel controls, counted: one row per organization, domain and period. No read model: a hit is a row counted
-- up, never an event, so these numbers cannot be had again from the event log.

create table pixel_counters (
  organization_id text collate "C" not null,
  domain text collate "C" not null,
  period text collate "C" not null check (period in ('day', 'month')),
  period_start date not null,
  used integer not null check (used >= 0),
  primary key (organization_id, domain, period, period_start)
) with (fillfactor = 50);

create index pixel_counters_age on pixel_counters (period_start);

-- What a hit with an id was answered, for a day.
create table pixel_hits (
  organization_id text collate "C" not null,
  hit_hash text collate "C" not null,
  expires_at timestamptz not null,
  fired boolean not null,
  -- The rules it was judged by, as the service writes them, and what each of their counters said after it.
  rules text not null,
  used integer[] not null,
  primary key (organization_id, hit_hash)
);

create index pixel_hits_expiry on pixel_hits (expires_at);

-- Judges a batch of hits in the order given, each against all of its limits or none of them.
--
-- One element per hit: p_organizations, p_hits (hash of the hit id, or null; no two hits of a batch share one), p_rules
-- (text kept with the hit), p_blocked, p_expires (when a hit id is forgotten: a day after the hit), p_counts (how many
-- limits it has). One element per limit, the first hit's first: p_windows (which window, from 1) and p_numbers (how many
-- hits it allows). One element per window, each once and sorted the same way by every caller: p_window_*.
--
-- Every counter is first counted up by all that is asked of it, which locks it, and then set back by what was refused.
-- Far from its cap, where counters mostly are, that is one write for a whole batch; nobody sees what lies between.
--
-- No two batches wait for each other: all take their counters first and write their hits then, each in one order.
--
-- Tables are only ever asked by primary key, from subqueries: no plan that is kept from when they were small can hurt.
-- Nested loops are off for what is joined, which are the batch's own arrays.
create function pixel_take(
  p_organizations text[], p_hits text[], p_rules text[], p_blocked boolean[], p_expires timestamptz[], p_counts integer[],
  p_windows integer[], p_numbers integer[],
  p_window_organizations text[], p_window_domains text[], p_window_periods text[], p_window_starts date[]
) returns table (ask integer, repeated boolean, fired boolean, rules text, used integer[])
language plpgsql
set enable_nestloop = off
as $$
#variable_conflict use_column
declare
  v_asks integer := cardinality(p_organizations);
  v_any_hit boolean := array_length(array_remove(p_hits, null), 1) is not null;
  -- Per hit: what it was answered before, if it was; whether it fires now.
  v_known pixel_hits[] := array_fill(null::pixel_hits, array[v_asks]);
  v_fired boolean[] := array_fill(false, array[v_asks]);
  -- Per window: hits that ask for it, and hits counted. Per limit: hits counted after its hit.
  v_asked integer[] := array_fill(0, array[cardinality(p_window_domains)]);
  v_counted integer[];
  v_written integer[];
  v_after integer[] := array_fill(0, array[cardinality(p_windows)]);
  v_from integer := 0;
  v_fires boolean;
  v_new text[];
begin
  if v_any_hit then
    select array_agg(case when h is not null then
             (select k from pixel_hits k
               where k.organization_id = o and k.hit_hash = h and k.expires_at > e - interval '24 h') end order by n)
      into v_known
      from unnest(p_organizations, p_hits, p_expires) with ordinality as a (o, h, e, n);
  end if;

  for v_ask in 1 .. v_asks loop
    if (v_known[v_ask]).fired is null then
      for i in v_from + 1 .. v_from + p_counts[v_ask] loop
        v_asked[p_windows[i]] := v_asked[p_windows[i]] + 1;
      end loop;
    end if;
    v_from := v_from + p_counts[v_ask];
  end loop;

  if cardinality(p_window_domains) > 0 then
    with counted as (
      insert into pixel_counters as c (organization_id, domain, period, period_start, used)
      select o, d, p, s, u
        from unnest(p_window_organizations, p_window_domains, p_window_periods, p_window_starts, v_asked)
             with ordinality as w (o, d, p, s, u, n)
       where u > 0 order by n
      on conflict (organization_id, domain, period, period_start) do update set used = c.used + excluded.used
      returning c.organization_id, c.domain, c.period, c.period_start, c.used
    )
    select array_agg(coalesce(c.used, 0) order by n), array_agg(coalesce(c.used - u, 0) order by n)
      into v_written, v_counted
      from unnest(p_window_organizations, p_window_domains, p_window_periods, p_window_starts, v_asked)
           with ordinality as w (o, d, p, s, u, n)
      left join counted c on c.domain = d and c.period = p and c.period_start = s and c.organization_id = o;
  end if;

  v_from := 0;
  for v_ask in 1 .. v_asks loop
    if (v_known[v_ask]).fired is null then
      v_fires := not p_blocked[v_ask];
      for i in v_from + 1 .. v_from + p_counts[v_ask] loop
        if v_counted[p_windows[i]] >= p_numbers[i] then
          v_fires := false;
        end if;
      end loop;
      for i in v_from + 1 .. v_from + p_counts[v_ask] loop
        if v_fires then
          v_counted[p_windows[i]] := v_counted[p_windows[i]] + 1;
        end if;
        v_after[i] := v_counted[p_windows[i]];
      end loop;
      v_fired[v_ask] := v_fires;
    end if;
    v_from := v_from + p_counts[v_ask];
  end loop;

  if v_any_hit then
    with added as (
      insert into pixel_hits as k (organization_id, hit_hash, expires_at, fired, rules, used)
      select o, h, e, v_fired[n], r, v_after[f + 1 : f + c]
        from (select o, h, e, r, c, n, sum(c) over (order by n)::integer - c as f
                from unnest(p_organizations, p_hits, p_expires, p_rules, p_counts) with ordinality as u (o, h, e, r, c, n)) a
       where h is not null and (v_known[n]).fired is null
       order by o collate "C", h collate "C"
      on conflict (organization_id, hit_hash) do update
        set expires_at = excluded.expires_at, fired = excluded.fired, rules = excluded.rules, used = excluded.used
        where k.expires_at <= excluded.expires_at - interval '24 h'
      returning k.organization_id || '/' || k.hit_hash as name
    )
    select array_agg(case when a.name is not null then '' end order by n) into v_new
      from unnest(p_organizations, p_hits) with ordinality as u (o, h, n) left join added a on a.name = o || '/' || h;
  end if;

  v_from := 0;
  for v_ask in 1 .. v_asks loop
    if p_hits[v_ask] is not null and (v_known[v_ask]).fired is null and v_new[v_ask] is null then
      -- Another process was asked about the same hit and was faster by a moment: its answer holds, and ours is undone.
      for i in v_from + 1 .. v_from + p_counts[v_ask] loop
        if v_fired[v_ask] then
          v_counted[p_windows[i]] := v_counted[p_windows[i]] - 1;
        end if;
      end loop;
      v_known[v_ask] := (select k from pixel_hits k where k.organization_id = p_organizations[v_ask] and k.hit_hash = p_hits[v_ask]);
      if (v_known[v_ask]).fired is null then
        raise exception 'pixel_take: the answer to a hit vanished';
      end if;
    end if;
    ask := v_ask;
    repeated := (v_known[v_ask]).fired is not null;
    if repeated then
      fired := (v_known[v_ask]).fired;
      rules := (v_known[v_ask]).rules;
      used := (v_known[v_ask]).used;
    else
      fired := v_fired[v_ask];
      rules := null;
      used := v_after[v_from + 1 : v_from + p_counts[v_ask]];
    end if;
    return next;
    v_from := v_from + p_counts[v_ask];
  end loop;

  for i in 1 .. cardinality(p_window_domains) loop
    if v_counted[i] <> v_written[i] then
      update pixel_counters c set used = v_counted[i]
       where c.organization_id = p_window_organizations[i] and c.domain = p_window_domains[i]
         and c.period = p_window_periods[i] and c.period_start = p_window_starts[i];
    end if;
  end loop;
end $$;
