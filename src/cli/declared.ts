import type { Context, Declared, Given as DeclaredGiven } from '../administration/declare.ts'
import type { Field } from '../administration/fields.ts'
import { twoPersonOf } from '../config.ts'
import type { Command, CommandContext, Given, Parameter } from './command.ts'

/** A command or query of administration as a command of this command line. */
export const commandOf = (declared: Declared): Command => {
  const { name, summary, fields, changes, action } = declared
  const asked = (given: Given) => declared.read(givenIn(fields, given))
  const contextIn = contextOf(declared)
  return {
    ...{ name, summary, action, parameters: fields.map(parameterOf) },
    changes:
      changes === 'nothing'
        ? changes
        : { ...changes, plan: async (context, given) => asked(given).plan(await contextIn(context)) },
    run: async (context, given) => {
      const { run } = asked(given)
      return run(await contextIn(context))
    },
  }
}

const contextOf =
  ({ anyHistory }: Declared) =>
  async ({ config, logger, foundation, progress, interrupted }: CommandContext): Promise<Context> => {
    const { operator, ...opened } = await foundation({ anyHistory: anyHistory === true })
    return { foundation: opened, operator, logger, twoPerson: twoPersonOf(config), progress, interrupted }
  }

const kinds: Partial<Record<Field['control'], NonNullable<Parameter['kind']>>> = {
  flag: 'flag',
  file: 'file',
  key: 'key',
}

const parameterOf = ({ flag, help, required, control, byDefault }: Field): Parameter => {
  const kind = kinds[control]
  const more = byDefault === undefined ? '' : ` (default ${byDefault})`
  return { name: flag, help: `${help}${more}`, ...(required && { required }), ...(kind && { kind }) }
}

const givenIn = (fields: readonly Field[], given: Given): DeclaredGiven =>
  Object.fromEntries(
    fields.flatMap(({ name, flag, required, control }) => {
      const value = control === 'flag' ? given.flag(flag) : required ? given.required(flag) : given.text(flag)
      return value === undefined ? [] : [[name, value]]
    }),
  )
