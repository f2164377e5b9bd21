import type { JsonObject, ReadNodes } from '../../src/egress/json-ld-nodes.ts'

/** A reader that returns every node, for tests of the nodes that readers receive. */
export const read: ReadNodes<null, readonly JsonObject[]> = (nodes) => nodes
