import { areas, declaredIn } from './areas.ts'
import type { Declared } from './declare.ts'

/** Every command and query of administration, in the order used by the help. */
export const declarations: readonly Declared[] = await declaredIn(areas)

/** The declaration with this name. Throws if no declaration has it. */
export const declarationNamed = (name: string): Declared => {
  const declared = declarations.find((one) => one.name === name)
  if (declared === undefined) throw new Error(`there is no command or query "${name}"`)
  return declared
}
