import { writeFile } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import {
  type Answer,
  type Asked,
  type Context,
  type Declared,
  type Given as DeclaredGiven,
  type Page,
  type Row,
  rowsDefault,
  rowsPerRead,
} from '../administration/declare.ts'
import { type Field, typedHelp } from '../administration/fields.ts'
import { priceNameForm, wholeNumber } from '../administration/input.ts'
import { catchUp } from '../administration/projections/catch-up.ts'
import { twoPersonOf } from '../config.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { addressesNow } from '../start/addresses.ts'
import { type Command, type CommandContext, type Given, type Parameter, UsageError } from './command.ts'
import { fromUser, readTextFile } from './files.ts'
import { outputParameters, withOutput } from './output.ts'
import { cut, nameCharsMax, plain, plainJson, table } from './table.ts'
import { answerTo, isTerminal } from './terminal.ts'

/** A document can contain a plan for all organizations of a large installation, but must fit into memory. */
const documentBytesMax = 256 * 1024 * 1024

/** Turns a declared command or query into a command of the command line. */
export const commandOf = (declared: Declared): Command => {
  const { name, summary, fields, changes, action, out, long } = declared
  // A query runs in this process and not in a job, so that a check does not depend on the service.
  const asJob = long !== undefined && changes !== 'nothing'
  const asked = async (given: Given) => declared.read(await givenIn(fields, given))
  return {
    name,
    summary,
    action,
    parameters: [
      ...fields.map(parameterOf),
      ...(out === undefined ? [] : [{ name: 'out', help: out, kind: 'file' } as const]),
      ...(declared.paged === true ? [limitParameter] : []),
      ...(asJob ? [hereParameter] : []),
      ...(declared.types === undefined ? [] : outputParameters),
    ],
    changes:
      changes === 'nothing'
        ? changes
        : {
            ...changes,
            plan: async (context, given) =>
              (await asked(given)).plan(await contextIn(declared, context, given)),
          },
    run: async (context, given) => {
      const values = await givenIn(fields, given)
      const { run, page, file: exported } = declared.read(values)
      if (declared.paged === true && page !== undefined) return streamed(declared, page, context, given)
      if (exported !== undefined) return written(declared, exported, context, given)
      if (declared.types !== undefined && given.text('out') !== undefined)
        throw new UsageError('--out: these values do not produce a file; --help describes the values that do')
      const own = await contextIn(declared, context, given)
      const elsewhere = asJob && !given.flag('here') ? await fromWorker(declared, values, own, context) : null
      const answer = elsewhere ?? (await run(own))
      const file = out === undefined ? undefined : given.text('out')
      if (file !== undefined) await writeFile(file, `${JSON.stringify(answer.json, null, 2)}\n`)
      return context.json ? answer : { ...answer, ...linesOf(declared, answer) }
    },
  }
}

const hereParameter: Parameter = {
  name: 'here',
  kind: 'flag',
  help: 'do the work in this process instead of a job that continues when this process ends',
}

const fromWorker = async (
  declared: Declared,
  given: DeclaredGiven,
  own: Context,
  { leaves }: CommandContext,
): Promise<Answer | null> => {
  const { answerFromWorker } = await import('./long-work.ts')
  return answerFromWorker(own, {
    declared,
    given,
    onBegun: (id) =>
      leaves(`The service continues the work: "jobs show ${id}" shows its progress and its answer.`),
  })
}

const contextIn = async (
  { anyHistory, anyEventLog, fields }: Declared,
  context: CommandContext,
  given: Given,
): Promise<Context> => {
  const { config, logger } = context
  const { operator, ...foundation } = await context.foundation({
    anyHistory: anyHistory === true,
    anyEventLog: anyEventLog?.(await givenIn(fields, given)) === true,
  })
  return {
    foundation,
    operator,
    logger,
    requestedAt: new Date().toISOString(),
    twoPerson: twoPersonOf(config),
    // Loaded on demand, because few commands need these modules.
    outside: async () => (await import('../start/capabilities.ts')).openOutside(config),
    dashboardUrl: async () => config.DASHBOARD_URL ?? (await addressesNow(config)).dashboardUrl,
    caughtUp: () => catchUp(foundation, logger),
    pixel: withPixel({ ...foundation, logger }),
    data: async () => {
      const { capabilityDataOf } = await import('../administration/capabilities.ts')
      return capabilityDataOf(foundation, { settings: config, logger })
    },
    progress: progressOf(context),
  }
}

const withPixel =
  (options: Pick<Foundation, 'eventLog' | 'url'> & Pick<CommandContext, 'logger'>): Context['pixel'] =>
  async (use) => {
    const { createPixelControls } = await import('../capabilities/index.ts')
    const pixel = createPixelControls(options)
    try {
      return await use(pixel)
    } finally {
      await pixel.close()
    }
  }

const jsonPauseMs = 500

/**
 * Overwrites one line on a terminal. With `--json`, writes JSON lines to standard error, because standard output contains only the answer.
 */
export const progressOf = ({
  json,
  progress,
}: Pick<CommandContext, 'json' | 'progress'>): Context['progress'] => {
  let toldAtMs = -jsonPauseMs
  return (line, figures) => {
    if (!json) return progress(line)
    if (figures === undefined || performance.now() - toldAtMs < jsonPauseMs) return
    toldAtMs = performance.now()
    process.stderr.write(`${JSON.stringify(figures)}\n`)
  }
}

const limitMax = 1_000_000
const limitParameter: Parameter = {
  name: 'limit',
  help: `the maximum number of rows (default ${rowsDefault}, at most ${limitMax})`,
}

/** Writes a list page by page: with `--json` as an array of objects, otherwise as lines of columns. */
const streamed = async (
  declared: Declared,
  page: NonNullable<Asked['page']>,
  context: CommandContext,
  given: Given,
): Promise<Answer> => {
  const { json, write } = context
  const max = wholeNumber('limit', given.text('limit') ?? String(rowsDefault), { min: 1, max: limitMax })
  const own = await contextIn(declared, context, given)
  let [count, cursor, missing]: [number, string | null, string | null] = [0, null, null]
  do {
    const { rows, next, lacks }: Page = await page(own, { cursor, max: Math.min(max - count, rowsPerRead) })
    for (const row of rows) {
      await write(
        json
          ? `${count === 0 ? '[\n' : ',\n'}${plainJson(JSON.stringify(row))}`
          : `${lineOf(declared, row)}\n`,
      )
      count++
    }
    if (lacks !== null && lacks !== missing) process.stderr.write(`${plain(lacks)}\n`)
    missing = lacks ?? missing
    cursor = next
  } while (cursor !== null && count < max)
  if (json) await write(count === 0 ? '[]\n' : '\n]\n')
  else if (count === 0) await write('nothing was found\n')
  return { json: [], written: true, failed: missing !== null }
}

/** Writes a file to the requested destination. With `--json`, JSON Lines become an array. */
const written = async (
  declared: Declared,
  file: NonNullable<Asked['file']>,
  context: CommandContext,
  given: Given,
): Promise<Answer> => {
  const { json } = context
  if (json && file.type !== 'application/jsonl')
    throw new UsageError('--json cannot be combined with a file format that is not JSON: omit one of them')
  const own = await contextIn(declared, context, given)
  const answer = await withOutput(context, given, async (write) => {
    if (!json) return file.write(own, write)
    let before = '['
    const done = await file.write(own, async (lines) => {
      if (lines === '') return
      // A line of JSON Lines contains no line break.
      await write(`${before}${lines.slice(0, -1).replaceAll('\n', ',')}`)
      before = ','
    })
    await write(before === '[' ? '[]\n' : ']\n')
    return done
  })
  const out = given.text('out')
  if (out === undefined) return { ...answer, written: true }
  return { ...answer, lines: (answer.lines ?? []).map((line) => `${out}: ${plain(line)}`) }
}

const lineOf = ({ columns = [] }: Declared, row: Row): string =>
  columns
    .flatMap(({ name, label, below }) => {
      const value = row[name] ?? null
      return value === null ? [] : [plain(below === undefined ? String(value) : `${label}: ${value}`)]
    })
    .join('  ')

/** Shows a list as a table, unless the answer has its own lines. */
const linesOf = ({ columns, empty }: Declared, { json, lines }: Answer): Pick<Answer, 'lines'> => {
  if (lines !== undefined) return { lines: lines.map(plain) }
  if (columns === undefined || !Array.isArray(json)) return {}
  if (json.length === 0 && empty !== undefined) return { lines: [empty] }
  const shown = (json as Readonly<Record<string, unknown>>[]).map((row) =>
    Object.fromEntries(
      columns.map(({ name, kind }) => {
        const value = row[name]
        return [name, typeof value === 'string' && kind === undefined ? cut(value, nameCharsMax) : value]
      }),
    ),
  )
  return { lines: table(shown) }
}

const kinds: Partial<Record<Field['control'], NonNullable<Parameter['kind']>>> = {
  flag: 'flag',
  file: 'file',
}

const parameterOf = (field: Field): Parameter => {
  const { flag, required, control, named, byDefault, options, personal } = field
  const kind = control === 'document' && named === undefined ? 'file' : kinds[control]
  const of =
    options === undefined
      ? ''
      : `: ${control === 'choices' ? 'comma-separated, of' : 'one of'} ${options.join(', ')}`
  const file =
    control === 'document'
      ? ' (the path of a file)'
      : personal === true
        ? '; - asks for it, or reads it from standard input'
        : ''
  const more = byDefault === undefined ? '' : ` (default ${byDefault})`
  return {
    name: flag,
    help: `${typedHelp(field)}${of}${file}${more}`,
    ...(required && { required }),
    ...(kind && { kind }),
  }
}

/** A value that must not be in the shell's history: asked for on a terminal, otherwise all of standard input. */
const unseen = async (label: string): Promise<string> =>
  isTerminal() ? answerTo(`${label}: `) : (await text(process.stdin)).trim()

const givenIn = async (fields: readonly Field[], given: Given): Promise<DeclaredGiven> => {
  const values: Record<string, unknown> = {}
  for (const { name, flag, label, required, control, named, personal } of fields) {
    const typed = control === 'flag' ? given.flag(flag) : required ? given.required(flag) : given.text(flag)
    if (typed === undefined) continue
    const value = personal === true && typed === '-' ? await unseen(label) : typed
    values[name] =
      control === 'document' &&
      typeof value === 'string' &&
      !(named === true && priceNameForm.test(value.trim()))
        ? await readTextFile(flag, fromUser(value), documentBytesMax)
        : value
  }
  return values
}
