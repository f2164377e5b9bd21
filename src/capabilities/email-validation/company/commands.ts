import { stat } from 'node:fs/promises'
import { domainToASCII } from 'node:url'
import { z } from 'zod'
import { command, query } from '../../../administration/declare.ts'
import { anyText, instant, line, path } from '../../../administration/fields.ts'
import { InputFault } from '../../../administration/input.ts'
import { recordImport } from '../../../call/data-source.ts'
import { readCompany } from './companies.ts'
import { importCompanies } from './import.ts'
import { registrableDomainOf } from './web-address.ts'

const companiesInFile = z.object({
  file: path({
    label: 'File',
    help: "JSON Lines in the format of People Data Labs' free company data set, optionally compressed (.gz)",
  }),
  source: line({ label: 'Source', help: 'the name of the source in answers' }).prefault('import'),
  updated_at: instant({
    label: 'Updated (UTC)',
    help: 'ISO 8601 instant: the date of the data (default: the date of the last change to the file)',
  }).optional(),
})

const asOf = async ({ file, updated_at }: z.output<typeof companiesInFile>): Promise<string> =>
  updated_at ?? (await stat(file)).mtime.toISOString()

const importFile = command({
  name: 'companies import',
  action: 'data.change',
  summary: 'add companies from a file; a repeated import of the same file changes nothing',
  input: companiesInFile,
  interfaces: ['command line'],
  changes: { of: 'records', asks: 'never' },
  plan: async (_, input) => `Add the companies in ${input.file}, as of ${await asOf(input)}.`,
  run: async ({ foundation: { pool, eventLog }, operator, progress }, input) => {
    const { file, source } = input
    const sourceUpdatedAt = await asOf(input)
    const report = await importCompanies({
      pool,
      file,
      source,
      sourceUpdatedAt,
      onProgress: ({ read, imported, percent, rowsPerSecond }) =>
        progress(`${percent} %, ${read} records read, ${imported} imported, ${rowsPerSecond}/s`),
    })
    const imported = report.added + report.changed
    // An import that changed nothing, such as a repeated import of the same file, is not recorded.
    if (imported > 0)
      await recordImport(eventLog, { data: 'companies', source, as_of: sourceUpdatedAt, imported }, operator)
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
        elapsed_ms: report.elapsedMs,
      },
    }
  },
})

const show = query({
  name: 'companies show',
  action: 'system.read',
  summary: 'show the company of a domain, as answers contain it',
  input: z.object({ domain: anyText({ label: 'Domain', help: 'a domain, or a host in it' }) }),
  run: async ({ foundation: { pool } }, { domain: text }) => {
    const found = registrableDomainOf(domainToASCII(text))
    if (found === null)
      throw new InputFault('domain', `"${text}" is neither a registrable domain nor within one`)
    const company = await readCompany(pool, found)
    return company === null
      ? { json: { domain: found, found: false }, lines: [`No company is known for ${found}.`], failed: true }
      : { json: company }
  },
})

export const companyDeclarations = [importFile, show]
