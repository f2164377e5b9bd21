import type { JsonObject, ReadNodes } from '../../src/egress/json-ld-nodes.ts'

/** A reader that keeps everything, for tests of what reaches readers. */
export const read: ReadNodes<null, readonly JsonObject[]> = (nodes) => nodes
