-- What is known about companies, by the domain they register. Not derived from the event log: operators import it from
-- data sets, and can import it again. Losing it costs company answers, never a fact or a charge.

create table companies (
  -- The registrable domain (public suffix plus one label) in A-labels, lower case.
  domain text collate "C" primary key,
  name text not null,
  legal_name text,
  website text,
  industry text,
  size_range text check (
    size_range in ('1-10', '11-50', '51-200', '201-500', '501-1000', '1001-5000', '5001-10000', '10001+')
  ),
  employee_count integer check (employee_count >= 0),
  founded_year smallint,
  locality text,
  region text,
  country text,
  country_code text check (country_code ~ '^[A-Z]{2}$'),
  profnet_url text,
  logo_url text,
  source text not null,
  -- When the source says its data are from: of two editions the later one counts.
  source_updated_at timestamptz not null,
  -- Between records of one edition about one domain: the higher preference counts, then the lower tie break. With
  -- these the rows do not depend on the order in which records arrive.
  preference integer not null,
  tie_break text collate "C" not null
);

-- What a later look at a mailbox found out, for the next call about the same address. The address itself is not here.
create table mailbox_checks (
  address_hmac text primary key,
  evidence text not null,
  checked_at timestamptz not null
);
create index mailbox_checks_checked_at on mailbox_checks (checked_at);
