import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { pipeline } from 'node:stream/promises'
import { domainToASCII } from 'node:url'
import { createGunzip } from 'node:zlib'
import { catchUp } from './administration/catch-up.ts'
import { instantOf, labelOf } from './administration/input.ts'
import { readCompany } from './capabilities/email-validation/company/companies.ts'
import { importCompanies } from './capabilities/email-validation/company/import.ts'
import { registrableDomainOf } from './capabilities/email-validation/company/record.ts'
import { ListRefused, refreshLists } from './capabilities/email-validation/lists/refresh.ts'
import { bundledGeoPaths, openGeoDatabase } from './capabilities/ip-lookup/geo-database.ts'
import { type Command, UsageError } from './cli/command.ts'
import { members, table } from './cli/table.ts'
import { ConfigError } from './config.ts'
import { vacuum } from './foundation/vacuum.ts'
import { eraseProfileOf, importProfilesFrom, tablesOfPeople } from './open-profile.ts'

/** Commands about what capabilities keep; here because `cli` knows no capability. */

const geoStatus: Command = {
  name: 'geo status',
  summary: 'which location files would be served, how old they are, and whether they are sound',
  parameters: [],
  run: async ({ config, logger }) => {
    const geo = await openGeoDatabase({ paths: config.GEOIP_CITY_DB ?? bundledGeoPaths(), logger }).catch(
      (error: unknown) => {
        if (config.GEOIP_CITY_DB === undefined || !(error instanceof Error)) throw error
        throw new ConfigError(`GEOIP_CITY_DB: ${error.message}`, { cause: error })
      },
    )
    try {
      const status = geo.status()
      const { files, ...all } = status
      const rows = files.map(({ path, families, ...file }) => ({
        families: families.map((family) => `IPv${family}`).join(', '),
        ...file,
        path,
      }))
      return { json: status, lines: [...table(rows), '', ...members(all)] }
    } finally {
      geo.close()
    }
  },
}

const companyFormats = ['jsonl', 'csv'] as const

const companiesImport: Command = {
  name: 'companies import',
  summary: 'add companies from a file; the same file again changes nothing',
  parameters: [
    {
      name: 'file',
      help: 'JSON lines or CSV in the shape of the People Data Labs free company set, .gz or not',
      required: true,
    },
    { name: 'format', help: `${companyFormats.join(' or ')} (default: by the name of the file)` },
    { name: 'source', help: 'what answers name as the source (default "import")' },
    {
      name: 'updated-at',
      help: 'ISO 8601 instant: when the data are from (default: when the file was last changed)',
    },
  ],
  run: async ({ foundation, progress }, given) => {
    const format = given.text('format')
    if (format !== undefined && !companyFormats.some((known) => known === format))
      throw new UsageError(`--format: "${format}" is neither ${companyFormats.join(' nor ')}`)
    const file = given.required('file')
    const updatedAt = given.text('updated-at')
    const sourceUpdatedAt =
      updatedAt === undefined ? (await stat(file)).mtime.toISOString() : instantOf('updated-at', updatedAt)
    const { pool } = await foundation()
    const report = await untilInterrupted((signal) =>
      importCompanies({
        pool,
        file,
        ...(format === undefined ? {} : { format: format as (typeof companyFormats)[number] }),
        source: given.text('source') ?? 'import',
        sourceUpdatedAt,
        signal,
        onProgress: ({ read, imported, percent, rowsPerSecond }) =>
          progress(`${percent} %, ${read} records read, ${imported} imported, ${rowsPerSecond}/s`),
      }),
    )
    return {
      json: {
        read: report.read,
        imported: report.imported,
        added: report.added,
        changed: report.changed,
        unchanged: report.unchanged,
        skipped_no_domain: report.skippedNoDomain,
        bad: report.bad,
        bad_by_reason: report.badByReason,
        bad_lines: report.badLines,
        interrupted: report.interrupted,
        elapsed_ms: report.elapsedMs,
      },
      failed: report.interrupted,
    }
  },
}

const companiesShow: Command = {
  name: 'companies show',
  summary: 'the company of a domain, as an answer would show it',
  parameters: [{ name: 'domain', help: 'a domain, or a host in it', required: true }],
  run: async ({ foundation }, given) => {
    const text = given.required('domain')
    const domain = registrableDomainOf(domainToASCII(text))
    if (domain === null) throw new UsageError(`--domain: "${text}" is not within a registrable domain`)
    const company = await readCompany((await foundation()).pool, domain)
    return company === null
      ? { json: { domain, found: false }, lines: [`no company is known for ${domain}`], failed: true }
      : { json: company }
  },
}

const profilesImport: Command = {
  name: 'profiles import',
  summary:
    'take people into the data set of the "dataset" provider; a line replaces what was known of its person',
  parameters: [{ name: 'file', help: 'JSON lines, .gz or not; - for standard input', required: true }],
  run: async ({ config, foundation, progress }, given) => {
    const file = given.required('file')
    const input = file === '-' ? process.stdin : createReadStream(file)
    const stream = file.endsWith('.gz') ? unpacked(input) : input
    const report = await importProfilesFrom(await foundation(), config, {
      stream: stream as AsyncIterable<Uint8Array>,
      onProgress: ({ lines, imported }) => progress(`${lines} lines read, ${imported} people imported`),
    })
    return {
      json: {
        lines: report.lines,
        imported: report.imported,
        gone: report.gone,
        suppressed: report.suppressed,
        bad: report.bad,
        bad_lines: report.badLines,
      },
      failed: report.imported === 0 && report.bad > 0,
    }
  },
}

/** A broken file breaks the reader as well, instead of leaving it waiting. */
const unpacked = (input: NodeJS.ReadableStream): AsyncIterable<Uint8Array> => {
  const gunzip = createGunzip()
  pipeline(input, gunzip).catch(() => undefined)
  return gunzip
}

const profilesErase: Command = {
  name: 'profiles erase',
  summary:
    'forget a person: destroy the keys of what is recorded, and never fetch, serve or import them again',
  parameters: [
    { name: 'id', help: 'profile id, URL or URN', required: true },
    { name: 'note', help: 'such as the number of the request; kept in the event log, so nothing personal' },
  ],
  run: async ({ config, foundation, logger }, given) => {
    const note = noteOf(given.text('note'))
    const open = await foundation()
    await catchUp(open, logger)
    const erased = await eraseProfileOf(open, config, { id: given.required('id'), actor: 'cli', note })
    if (erased === null)
      throw new UsageError('--id: neither a profile id, nor a profile URL, nor a person URN')
    await catchUp(open, logger)
    const kept = await vacuum(open.migrationUrl, tablesOfPeople())
    const goneBy = new Date(await open.epochKeys.lastCopyGoneByMs()).toISOString()
    const suppressed = `${erased.identifiers} ${erased.identifiers === 1 ? 'identifier is' : 'identifiers are'} suppressed: never fetched, served or imported again.`
    return {
      json: {
        erased: true,
        subjects: erased.subjects,
        identifiers_suppressed: erased.identifiers,
        last_copy_gone_by: goneBy,
        vacuumed: kept === null,
      },
      failed: kept !== null,
      lines: [
        erased.subjects === 0
          ? 'Nobody is known by it any more; no record was left to destroy.'
          : `Erased: what was recorded of ${erased.subjects === 1 ? 'the person' : `${erased.subjects} entries of the person`} cannot be read any more.`,
        suppressed,
        `What heap, write-ahead log and backups still hold of it opens for nobody from ${goneBy} on, when the last key it is under is destroyed; a process with the role "jobs" does that. Copies of KEY_DIR made before then have to be deleted.`,
        ...(kept === null
          ? []
          : [
              `The tables could not be vacuumed: ${kept}. The date holds; run the command again, or vacuum as their owner.`,
            ]),
      ],
    }
  },
}

/** Checked before anything is erased: the event it stands in is written after the keys are destroyed. */
const noteOf = (text: string | undefined): string | null =>
  text === undefined ? null : labelOf('note', text)

const listsRefresh: Command = {
  name: 'lists refresh',
  summary:
    'fetch the lists of disposable and free domains anew; services read them when they start and on SIGHUP',
  parameters: [{ name: 'from', help: 'a folder of downloads, <source>.txt each, instead of the network' }],
  run: async (_context, given) => {
    const from = given.text('from')
    try {
      return { json: await refreshLists({ ...(from === undefined ? {} : { from }), now: new Date() }) }
    } catch (error) {
      if (error instanceof ListRefused) return { json: { refused: error.message }, failed: true }
      throw error
    }
  },
}

/** Ctrl-C ends long work where it is consistent, not in the middle; a second one ends the process. */
const untilInterrupted = async <T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> => {
  const interrupted = new AbortController()
  const interrupt = (): void => interrupted.abort()
  process.once('SIGINT', interrupt)
  try {
    return await work(interrupted.signal)
  } finally {
    process.off('SIGINT', interrupt)
  }
}

export const capabilityCommands: readonly Command[] = [
  geoStatus,
  companiesImport,
  companiesShow,
  listsRefresh,
  profilesImport,
  profilesErase,
]
