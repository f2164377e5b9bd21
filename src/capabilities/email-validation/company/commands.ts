import { stat } from 'node:fs/promises'
import { domainToASCII } from 'node:url'
import { InputFault, instantOf } from '../../../administration/input.ts'
import type { CapabilityCommand } from '../../../call/command.ts'
import { readCompany } from './companies.ts'
import { importCompanies } from './import.ts'
import { registrableDomainOf } from './web-address.ts'

const companyFormats = ['jsonl', 'csv'] as const

export const companiesImport: CapabilityCommand = {
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
  run: async ({ storage, progress }, given) => {
    const format = given.text('format')
    if (format !== undefined && !companyFormats.some((known) => known === format))
      throw new InputFault('format', `"${format}" is neither ${companyFormats.join(' nor ')}`)
    const file = given.required('file')
    const updatedAt = given.text('updated-at')
    const sourceUpdatedAt =
      updatedAt === undefined ? (await stat(file)).mtime.toISOString() : instantOf('updated-at', updatedAt)
    const { pool } = await storage()
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

export const companiesShow: CapabilityCommand = {
  name: 'companies show',
  summary: 'the company of a domain, as an answer would show it',
  parameters: [{ name: 'domain', help: 'a domain, or a host in it', required: true }],
  run: async ({ storage }, given) => {
    const text = given.required('domain')
    const domain = registrableDomainOf(domainToASCII(text))
    if (domain === null) throw new InputFault('domain', `"${text}" is not within a registrable domain`)
    const company = await readCompany((await storage()).pool, domain)
    return company === null
      ? { json: { domain, found: false }, lines: [`no company is known for ${domain}`], failed: true }
      : { json: company }
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
