import type { ReadNodes } from '../../src/egress/json-ld-nodes.ts'

/** A reader with a fault: it never ends, or throws where it is given nothing. */
export const read: ReadNodes<string | null, never> = (_nodes, input) => {
  if (input === null) throw new Error('nothing given')
  for (;;);
}
