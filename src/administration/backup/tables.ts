/** The tables that a backup contains. A test fails if a table of the schema is in none of these lists, or in two. */

/** The Postgres log. Left out if the event log is an EventStoreDB, which has its own backups. */
export const logTables = ['log_head', 'log_streams', 'log_segments'] as const

/** Everything that cannot be derived from the event log, ordered so that rows come after the rows they refer to. */
export const keptTables = [
  'epoch_keys',
  'users',
  'user_second_factors',
  'companies',
  'mailbox_checks',
  'idempotent_calls',
  'pixel_counters',
  'pixel_hits',
  'profile_dataset',
  'profile_keys',
  'profile_suppressions',
  'webhook_endpoints',
  'webhook_deliveries',
  'webhook_progress',
  'webhook_balances',
  'parked_events',
] as const

/**
 * They contain positions, which differ in another event log. If a restore copies the log, webhooks read it from its beginning, and a
 * message that was already sent is recognized by its id; events that cannot be folded are set aside again.
 */
export const tablesOfPositions: readonly string[] = ['webhook_progress', 'webhook_balances', 'parked_events']

/** The tables that are left out, and why a restored installation does not miss them. The schemas `projections` and `pgboss` are left out entirely. */
export const leftOutTables = {
  schema_migrations: 'made by the migrations of the restored installation',
  installation: 'stored at the first start: the event log that the rows were folded from',
  installation_mark: 'the mark of a database that was closed or is being restored, and of no other',
  projection_checkpoints: 'made by the rebuild',
  halted_streams: 'made by the rebuild',
  projection_rebuilds: 'work under way; requests and results are in the event log',
  projection_builds: 'work under way',
  log_tree: 'made again from the event log by the next checkpoint',
  log_tree_tiles: 'made again from the event log by the next checkpoint',
  closed_months: 'stored again, from the event log, by the first statement of each closed month',
  leases: 'of running processes',
  processes: 'of running processes',
  profile_fetches: 'of running processes',
  dashboard_forms: 'of submitted forms; open forms belong to sessions that end',
  work_progress: 'progress of long work, which no other installation does',
  admin_requests: 'answers of the last day, kept for repeated requests',
  dashboard_attempts: 'of the last minute',
  dashboard_sessions: 'people sign in again',
} as const satisfies Readonly<Record<string, string>>
