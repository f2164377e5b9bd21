import type { ReadNodes } from '../../src/egress/json-ld-nodes.ts'

/** A faulty reader: it never ends, or throws if its input is null. */
export const read: ReadNodes<string | null, never> = (_nodes, input) => {
  if (input === null) throw new Error('nothing given')
  for (;;);
}
