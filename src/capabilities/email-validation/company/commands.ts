import { stat } from 'node:fs/promises'
import { domainToASCII } from 'node:url'
import { InputFault, instantOf } from '../../../administration/input.ts'
import type { CapabilityCommand, Given } from '../../../call/command.ts'
import { recordImport } from '../../../call/data-source.ts'
import { readCompany } from './companies.ts'
import { importCompanies } from './import.ts'
import { registrableDomainOf } from './web-address.ts'

const companyFormats = ['jsonl', 'csv'] as const

const importOf = async (given: Given) => {
  const text = given.text('format')
  const format = companyFormats.find((known) => known === text)
  if (text !== undefined && format === undefined)
    throw new InputFault('format', `"${text}" is neither ${companyFormats.join(' nor ')}`)
  const file = given.required('file')
  const updatedAt = given.text('updated-at')
  return {
    file,
    ...(format === undefined ? {} : { format }),
    source: given.text('source') ?? 'import',
    sourceUpdatedAt:
      updatedAt === undefined ? (await stat(file)).mtime.toISOString() : instantOf('updated-at', updatedAt),
  }
}

export const companiesImport: CapabilityCommand = {
  name: 'companies import',
  summary: 'add companies from a file; the same file again changes nothing',
  parameters: [
    {
      name: 'file',
      help: 'JSON lines or CSV in the shape of the People Data Labs free company set, .gz or not',
      required: true,
      kind: 'file',
    },
    { name: 'format', help: `${companyFormats.join(' or ')} (default: by the name of the file)` },
    { name: 'source', help: 'what answers name as the source (default "import")' },
    {
      name: 'updated-at',
      help: 'ISO 8601 instant: when the data are from (default: when the file was last changed)',
    },
  ],
  changes: {
    of: 'records',
    asks: 'never',
    left: 'What was read up to here is imported: the same file again changes nothing of it.',
    stopsItself: true,
    plan: async (_, given) => {
      const { file, sourceUpdatedAt } = await importOf(given)
      return { says: [`Add the companies of ${file}, as they were at ${sourceUpdatedAt}.`] }
    },
  },
  run: async ({ storage, progress, interrupted }, given) => {
    const wanted = await importOf(given)
    const { pool, eventLog, operator } = await storage()
    const report = await importCompanies({
      pool,
      ...wanted,
      signal: interrupted,
      onProgress: ({ read, imported, percent, rowsPerSecond }) =>
        progress(`${percent} %, ${read} records read, ${imported} imported, ${rowsPerSecond}/s`),
    })
    const imported = report.added + report.changed
    // Importing the same file again changes nothing, so nothing is recorded.
    if (imported > 0)
      await recordImport(
        eventLog,
        { data: 'companies', source: wanted.source.slice(0, 200), as_of: wanted.sourceUpdatedAt, imported },
        operator,
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
  changes: 'nothing',
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
