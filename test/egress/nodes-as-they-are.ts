import type { JsonObject, ReadNodes } from '../../src/egress/json-ld-nodes.ts'

/** A reader that keeps everything, for tests of what readers get. */
export const read: ReadNodes<null, readonly JsonObject[]> = (nodes) => nodes
