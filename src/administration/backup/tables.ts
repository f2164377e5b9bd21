/** The tables that a backup contains. A test lists all other tables, each with the reason for leaving it out. */

/** The tables of the event log in PostgreSQL. They are left out if the event log is in EventStoreDB, which has its own backups. */
export const logTables = ['log_stream_marks', 'log_segments'] as const

/** Tables of the event log before `migrations/0014_log_marks.sql`, in backups of that time. They are views now. */
export const formerLogTables = ['log_head', 'log_streams'] as const

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
 * Tables that contain positions, which differ in another event log. If a restore copies the log, these tables start empty: webhooks
 * read the copy from its beginning and skip messages that were already sent, and events that cannot be folded are set aside again.
 */
export const tablesOfPositions: readonly string[] = ['webhook_progress', 'webhook_balances', 'parked_events']
