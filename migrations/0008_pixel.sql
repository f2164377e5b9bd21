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

-- What a hit with an id was answered, for a day. fired, rules and used are null only inside pixel_take.
create table pixel_hits (
  organization_id text collate "C" not null,
  hit_hash text collate "C" not null,
  expires_at timestamptz not null,
  fired boolean,
  -- The rules it was judged by, as the service writes them, and what each of their counters said after it.
  rules text,
  used integer[],
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
-- No two batches can wait for each other: all of them first insert hits, then insert windows, then lock windows, each in one
-- order; a row inserted here is invisible until the end, so nobody who has come further can be waiting for it.
--
-- Sequential scans and hash joins are off because the plans are kept, and would be made while the tables are small.
create function pixel_take(
  p_organizations text[], p_hits text[], p_rules text[], p_blocked boolean[], p_expires timestamptz[], p_counts integer[],
  p_windows integer[], p_numbers integer[],
  p_window_organizations text[], p_window_domains text[], p_window_periods text[], p_window_starts date[]
) returns table (ask integer, repeated boolean, fired boolean, rules text, used integer[])
language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_asks integer := cardinality(p_organizations);
  v_any_hit boolean := array_length(array_remove(p_hits, null), 1) is not null;
  v_repeated boolean[] := array_fill(false, array[v_asks]);
  v_fired boolean[] := array_fill(false, array[v_asks]);
  -- Per window, what is counted; per limit, the same after its hit.
  v_counted integer[] := '{}';
  v_after integer[] := array_fill(0, array[cardinality(p_windows)]);
  v_from integer := 0;
  v_fires boolean;
begin
  if v_any_hit then
    with asked as (
      select o, h, e, n from unnest(p_organizations, p_hits, p_expires) with ordinality as a (o, h, e, n) where h is not null
    ), claimed as (
      insert into pixel_hits as k (organization_id, hit_hash, expires_at)
      select o, h, e from asked order by o collate "C", h collate "C"
      on conflict (organization_id, hit_hash) do update
        set expires_at = excluded.expires_at, fired = null, rules = null, used = null
        where k.expires_at <= excluded.expires_at - interval '24 h'
      returning k.organization_id, k.hit_hash
    )
    select array_agg(a.h is not null and c.hit_hash is null order by a.n) into v_repeated
      from unnest(p_organizations, p_hits) with ordinality as a (o, h, n)
      left join claimed c on c.organization_id = a.o and c.hit_hash = a.h;
  end if;

  if cardinality(p_window_domains) > 0 then
    insert into pixel_counters (organization_id, domain, period, period_start, used)
    select o, d, p, s, 0
      from unnest(p_window_organizations, p_window_domains, p_window_periods, p_window_starts) with ordinality as w (o, d, p, s, n)
     order by n
    on conflict do nothing;

    -- A statement of its own: its snapshot sees what others inserted before it got here.
    select array_agg(l.used order by l.n) into v_counted
      from (select w.n, c.used
              from unnest(p_window_organizations, p_window_domains, p_window_periods, p_window_starts)
                   with ordinality as w (o, d, p, s, n)
              join pixel_counters c
                on c.organization_id = w.o and c.domain = w.d and c.period = w.p and c.period_start = w.s
             order by w.n
               for no key update of c) l;
    if cardinality(v_counted) <> cardinality(p_window_domains) then
      raise exception 'pixel_take locked % of % windows', cardinality(v_counted), cardinality(p_window_domains);
    end if;
  end if;

  for v_ask in 1 .. v_asks loop
    if not v_repeated[v_ask] then
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

  if cardinality(p_window_domains) > 0 then
    update pixel_counters c set used = w.u
      from unnest(p_window_organizations, p_window_domains, p_window_periods, p_window_starts, v_counted) as w (o, d, p, s, u)
     where c.organization_id = w.o and c.domain = w.d and c.period = w.p and c.period_start = w.s and c.used <> w.u;
  end if;

  if v_any_hit then
    update pixel_hits k set fired = v_fired[a.n], rules = a.r, used = v_after[a.f + 1 : a.f + a.c]
      from (select o, h, r, c, n::integer, sum(c) over (order by n)::integer - c as f
              from unnest(p_organizations, p_hits, p_rules, p_counts) with ordinality as u (o, h, r, c, n)) a
     where k.organization_id = a.o and k.hit_hash = a.h and not v_repeated[a.n];
  end if;

  return query
    select a.n, v_repeated[a.n],
           case when v_repeated[a.n] then k.fired else v_fired[a.n] end,
           case when v_repeated[a.n] then k.rules end,
           case when v_repeated[a.n] then k.used else v_after[a.f + 1 : a.f + a.c] end
      from (select o, h, c, n::integer, sum(c) over (order by n)::integer - c as f
              from unnest(p_organizations, p_hits, p_counts) with ordinality as u (o, h, c, n)) a
      left join pixel_hits k on v_repeated[a.n] and k.organization_id = a.o and k.hit_hash = a.h;
end $$;
