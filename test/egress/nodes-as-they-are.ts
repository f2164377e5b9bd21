import type { JsonObject, ReadNodes } from '../../src/egress/json-ld-nodes.ts'

/** A reader that returns every node it receives, so that tests can compare the nodes. */
export const read: ReadNodes<null, readonly JsonObject[]> = (nodes) => nodes
