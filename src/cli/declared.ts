import type { Context, Declared, Given as DeclaredGiven } from '../administration/declare.ts'
import type { Field } from '../administration/fields.ts'
import { twoPersonOf } from '../config.ts'
import { addressesNow } from '../start/addresses.ts'
import { openOutside } from '../start/capabilities.ts'
import type { Answer, Command, CommandContext, Given, Parameter } from './command.ts'
import { cut, table } from './table.ts'

/** A command or query of administration as a command of this command line. */
export const commandOf = (declared: Declared): Command => {
  const { name, summary, fields, changes, action } = declared
  const asked = (given: Given) => declared.read(givenIn(fields, given))
  return {
    ...{ name, summary, action, parameters: fields.map(parameterOf) },
    changes:
      changes === 'nothing'
        ? changes
        : {
            ...changes,
            plan: async (context, given) => asked(given).plan(await contextIn(declared, context, given)),
          },
    run: async (context, given) => {
      const { run } = asked(given)
      const answer = await run(await contextIn(declared, context, given))
      return { ...answer, ...linesOf(declared, answer) }
    },
  }
}

const contextIn = async (
  { anyHistory, anyEventLog, fields }: Declared,
  context: CommandContext,
  given: Given,
): Promise<Context> => {
  const { config, logger, interrupted } = context
  const { operator, ...foundation } = await context.foundation({
    anyHistory: anyHistory === true,
    anyEventLog: anyEventLog?.(givenIn(fields, given)) === true,
  })
  return {
    ...{ foundation, operator, logger, interrupted },
    twoPerson: twoPersonOf(config),
    outside: () => openOutside(config),
    dashboardUrl: async () => config.DASHBOARD_URL ?? (await addressesNow(config)).dashboardUrl,
    progress: progressOf(context),
  }
}

const jsonPauseMs = 500

/** On a terminal a line that is overwritten; with `--json` JSON lines on standard error, so that standard output has only the answer. */
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

/** Texts in a table have at most so many characters; `--json` has them whole. */
const cellMax = 80

/** A list as a table of its columns, unless the answer has lines of its own. */
const linesOf = ({ columns }: Declared, { json, lines }: Answer): Pick<Answer, 'lines'> => {
  if (lines !== undefined || columns === undefined || !Array.isArray(json)) return {}
  const shown = (json as Readonly<Record<string, unknown>>[]).map((row) =>
    Object.fromEntries(
      columns.map(({ name, kind }) => {
        const value = row[name]
        return [name, typeof value === 'string' && kind === undefined ? cut(value, cellMax) : value]
      }),
    ),
  )
  return { lines: table(shown) }
}

const kinds: Partial<Record<Field['control'], NonNullable<Parameter['kind']>>> = {
  flag: 'flag',
  file: 'file',
}

const parameterOf = ({ flag, help, required, control, byDefault, options }: Field): Parameter => {
  const kind = kinds[control]
  const of =
    options === undefined
      ? ''
      : `: ${control === 'choices' ? 'comma-separated, of' : 'one of'} ${options.join(', ')}`
  const more = byDefault === undefined ? '' : ` (default ${byDefault})`
  return { name: flag, help: `${help}${of}${more}`, ...(required && { required }), ...(kind && { kind }) }
}

const givenIn = (fields: readonly Field[], given: Given): DeclaredGiven =>
  Object.fromEntries(
    fields.flatMap(({ name, flag, required, control }) => {
      const value = control === 'flag' ? given.flag(flag) : required ? given.required(flag) : given.text(flag)
      return value === undefined ? [] : [[name, value]]
    }),
  )
