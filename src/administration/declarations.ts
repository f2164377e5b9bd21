import type { Declared } from './declare.ts'
import { declaredOf, nouns } from './nouns.ts'

/** Every command and query that interfaces other than the command line can offer, in the order used by the help. */
export const declarations: readonly Declared[] = (await Promise.all(nouns.map(declaredOf))).flat()

/** The declaration with this name. Throws if no declaration has it. */
export const declarationNamed = (name: string): Declared => {
  const declared = declarations.find((one) => one.name === name)
  if (declared === undefined) throw new Error(`there is no command or query "${name}"`)
  return declared
}
