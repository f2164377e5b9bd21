-- How far long work is, for the processes that show it. Losing it costs a line on a page.
create unlogged table work_progress (
  -- Of the queue's job.
  job_id uuid primary key,
  -- For people.
  line text not null,
  -- For programs.
  figures json,
  told_at timestamptz not null default now()
);
