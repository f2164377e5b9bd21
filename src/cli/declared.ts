import { styleText } from 'node:util'
import {
  type Answer,
  type AnyDeclared,
  type Asked,
  type Context,
  type Declared,
  type Given,
  type Host,
  type Page,
  type Plan,
  type Row,
  rowsDefault,
  rowsPerRead,
  type Write,
} from '../administration/declare.ts'
import { UsageError, wholeNumber } from '../administration/input.ts'
import { fromUser } from './files.ts'
import { withOutput } from './output.ts'
import { limitMax, runsAsJob, type Typed } from './parse.ts'
import { cut, nameCharsMax, plain, plainJson, table } from './table.ts'

type Run = {
  readonly given: Given
  readonly typed: Typed
  readonly json: boolean
  readonly write: Write
  /** Sets the sentence that an interruption prints from now on. */
  readonly leaves: (what: string) => void
}
type RunInStores = Run & { readonly open: () => Promise<Context> }

type Work = { readonly plan: () => Promise<Plan>; readonly run: () => Promise<Answer> }

/** Returns the work of a command or query with the typed values. Throws `InputFault` for an invalid value. */
export const workOf = (declared: AnyDeclared, { host, ...run }: Run & { readonly host: Host }): Work => {
  if (!('readOnHost' in declared)) return workInStores(declared, { ...run, open: host.open })
  const asked = declared.readOnHost(run.given)
  return { plan: () => asked.plan(host), run: async () => shown(declared, await asked.run(host), run) }
}

export const workInStores = (declared: Declared, typed: Run & Pick<Host, 'open'>): Work => {
  const { given, open } = typed
  const asked = declared.read(given)
  const { anyHistory = false, anyEventLog } = declared
  const run = { ...typed, open: () => open({ anyHistory, anyEventLog: anyEventLog?.(given) === true }) }
  const { page, file } = asked
  return {
    plan: async () => asked.plan(await run.open()),
    run: async () => {
      if (declared.paged === true && page !== undefined) return streamed(declared, page, run)
      if (file !== undefined) return written(file, run)
      return shown(declared, await answered(declared, asked, run), run)
    },
  }
}

const shown = (declared: AnyDeclared, answer: Answer, { json }: Pick<Run, 'json'>): Answer =>
  json ? answer : { ...answer, ...linesOf(declared, answer) }

/** The path in `--out`; undefined if the option is absent. */
const outIn = ({ texts }: Typed): string | undefined => {
  const out = texts.get('out')
  return out === undefined || out.trim() === '' ? out : fromUser(out)
}

const answered = async (declared: Declared, asked: Asked, run: RunInStores): Promise<Answer> => {
  const out = outIn(run.typed)
  if (declared.types !== undefined && out !== undefined)
    throw new UsageError('--out: these values do not produce a file; --help describes the values that do')
  const context = await run.open()
  const asJob = runsAsJob(declared) && !run.typed.flags.has('here')
  const answer = (asJob ? await fromWorker(declared, context, run) : null) ?? (await asked.run(context))
  if (out !== undefined)
    await withOutput(run.write, { path: out, replace: true }, (put) =>
      put(`${JSON.stringify(answer.json, null, 2)}\n`),
    )
  return answer
}

const fromWorker = async (
  declared: Declared,
  context: Context,
  { given, leaves }: Run,
): Promise<Answer | null> => {
  const { answerFromWorker } = await import('./long-work.ts')
  return answerFromWorker(context, {
    declared,
    given,
    onBegun: (id) =>
      leaves(`The service continues the work: "jobs show ${id}" shows its progress and its answer.`),
  })
}

/** Writes a list page by page: with `--json` as an array of objects, otherwise as lines of columns. */
const streamed = async (
  declared: Declared,
  page: NonNullable<Asked['page']>,
  { typed, json, write, open }: RunInStores,
): Promise<Answer> => {
  const limit = typed.texts.get('limit') ?? String(rowsDefault)
  const max = wholeNumber('limit', limit, { min: 1, max: limitMax })
  const context = await open()
  let [count, cursor, missing]: [number, string | null, string | null] = [0, null, null]
  do {
    const { rows, next, lacks }: Page = await page(context, {
      cursor,
      max: Math.min(max - count, rowsPerRead),
    })
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
  file: NonNullable<Asked['file']>,
  { typed, json, write, open }: RunInStores,
): Promise<Answer> => {
  if (json && file.type !== 'application/jsonl')
    throw new UsageError('--json cannot be combined with a file format that is not JSON: omit one of them')
  const context = await open()
  const out = outIn(typed)
  const answer = await withOutput(write, { path: out, replace: typed.flags.has('force') }, async (put) => {
    if (!json) return file.write(context, put)
    let before = '['
    const done = await file.write(context, async (lines) => {
      if (lines.length === 0) return
      // A line of JSON Lines contains no line break.
      await put(`${before}${lines.toString().slice(0, -1).replaceAll('\n', ',')}`)
      before = ','
    })
    await put(before === '[' ? '[]\n' : ']\n')
    return done
  })
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
const linesOf = ({ columns, empty }: AnyDeclared, { json, lines }: Answer): Pick<Answer, 'lines'> => {
  if (lines !== undefined) return { lines: lines.map((line) => coloured(plain(line))) }
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

const colours: Readonly<Record<string, Parameters<typeof styleText>[0]>> = {
  ok: 'green',
  warning: 'yellow',
  fault: 'red',
}

/** On a terminal, the state at the beginning of a line has a colour. */
const coloured = (line: string): string =>
  line.replace(/^(?:ok|warning|fault)(?= {2})/, (state) =>
    styleText(colours[state] ?? [], state, { stream: process.stdout }),
  )
