import type pg from 'pg'

/**
 * The PostgreSQL settings on which statements and the reading of their results depend. A server, database or role can have other
 * values, for example its own time zone, or a format of dates that `pg` would read as other dates.
 */
const settings = {
  timezone: 'UTC',
  datestyle: 'ISO,YMD',
  intervalstyle: 'postgres',
  bytea_output: 'hex',
  extra_float_digits: '1',
  standard_conforming_strings: 'on',
  // If it is off, a missing value in a parameter's array is the text "NULL".
  array_nulls: 'on',
  // If it is on, a comparison with a missing value is true instead of unknown.
  transform_null_equals: 'off',
  // At a higher level, the server refuses transactions that change the same row at the same time, such as concurrent appends.
  default_transaction_isolation: 'read committed',
  // Connections wait idle for work. The server would end them again and again, and the projector would restart each time.
  idle_session_timeout: '0',
  // Backups, migrations and rebuilds have statements that take minutes. Connections that need a limit set their own.
  statement_timeout: '0',
} as const

const own = Object.entries(settings)
  .map(([name, value]) => `-c ${name}=${value.replaceAll(' ', '\\ ')}`)
  .join(' ')

/** `pg` does not decode these characters in the name of the database, but accepts them unencoded. */
const decodable = /%(?:2[46BCF]|3[ABD]|40)/gi

const withReadableDatabase = (url: string): string =>
  url.replace(
    /^([^:/]*:\/\/[^/]*\/)([^?]*)/,
    (_, server: string, database: string) => server + database.replace(decodable, decodeURIComponent),
  )

/**
 * Returns the URL with these settings for its connections, and with a database name that `pg` reads correctly. The settings take precedence over
 * options in the URL or in PGOPTIONS.
 */
export const withSessionSettings = (given: string): string => {
  const url = withReadableDatabase(given)
  const at = url.indexOf('?')
  const parameters = new URLSearchParams(at < 0 ? '' : url.slice(at))
  const options = parameters.get('options') ?? process.env.PGOPTIONS ?? ''
  if (options.endsWith(own)) return url
  parameters.set('options', `${options} ${own}`.trim())
  return `${at < 0 ? url : url.slice(0, at)}?${parameters}`
}

/** Names of UTC that a server or role can have as its own default. */
const utcNames = /^(Etc\/)?(UTC|UCT|Universal|Zulu|GMT)$/i

/** Returns the settings of the URL that a connection does not have. The order of day and month in input does not matter to statements. */
export const settingsLost = async (client: pg.ClientBase): Promise<{ name: string; value: string }[]> => {
  const { rows } = await client.query<{ name: string; value: string }>(
    'select name, setting as value from pg_settings',
  )
  // In a Turkish database, the lower case of "IntervalStyle" begins with another letter.
  const actual = new Map(rows.map(({ name, value }) => [name.toLowerCase(), value]))
  return Object.entries(settings)
    .map(([name, value]) => ({ name, value }))
    .filter(({ name, value }) => {
      const found = actual.get(name) ?? ''
      if (name === 'timezone') return !utcNames.test(found)
      if (name === 'datestyle') return !found.startsWith('ISO')
      return found !== value
    })
}
