import { logStart, type RecordedEvent } from '../port.ts'
import { noteDigest } from '../tree/grow.ts'
import { leafDigestOf } from '../tree/leaves.ts'
import { writeLeafHash } from '../tree/merkle-tree.ts'
import { TileStack } from '../tree/tiles.ts'

/** Calculates the tree from the log, and compares it with the signed roots. */

/** The root that the log must have at a given size. */
export type ExpectedRoot = {
  readonly size: number
  /** Null if only the size is known. The log must then have at least this size. */
  readonly root: string | null
  /** The position of the last leaf's event, or null if it is unknown. */
  readonly position: string | null
  /** Called with a description of the difference if the log does not have this root. */
  readonly refuted: (why: string) => void
}

export type Roots = {
  /** Adds this service's next event, in log order. */
  add(event: RecordedEvent): void
  /** Must be called after the last event. Refutes the expected roots for which the log is too short. */
  end(): void
  readonly size: number
  /** The last signed root that matches the log, or null if none does. */
  readonly passed: { readonly size: number; readonly root: string } | null
}

export const createRoots = ({
  tree,
  expected,
  begun: stack = new TileStack(),
}: {
  readonly tree: { readonly previousNote: string | null } | null
  readonly expected: readonly ExpectedRoot[]
  /** The tree over the leaves that were verified earlier. */
  readonly begun?: TileStack | undefined
}): Roots => {
  const due = [...expected].sort((a, b) => a.size - b.size)
  const sizeMax = due.at(-1)?.size ?? 0
  let { size } = stack
  let next = 0
  let passed: Roots['passed'] = null

  const addLeaf = (digest: string, position: bigint): void => {
    size++
    // Leaves after the last expected root are not hashed.
    if (size > sizeMax) return
    stack.add(
      (target, at) => writeLeafHash(digest, target, at),
      () => undefined,
    )
    for (let one = due[next]; one?.size === size; one = due[++next]) {
      const { root } = one
      if (root !== null && compareRoot({ ...one, root }, stack, position)) passed = { size, root }
    }
  }
  if (size === 0 && tree !== null && tree.previousNote !== null)
    addLeaf(noteDigest(tree.previousNote), logStart)
  return {
    add: (event) => addLeaf(leafDigestOf(event), event.position),
    end: () => {
      for (const { refuted } of due.slice(next))
        refuted(`the log has only ${size} leaves, so its end is missing`)
    },
    get size() {
      return size
    },
    get passed() {
      return passed
    },
  }
}

const compareRoot = (
  expected: ExpectedRoot & { root: string },
  stack: TileStack,
  position: bigint,
): boolean => {
  const root = stack.root().toString('base64')
  if (root !== expected.root)
    expected.refuted(
      `the log's first ${expected.size} leaves have the root ${root}, so an earlier event was changed`,
    )
  else if (expected.position !== null && expected.position !== position.toString())
    expected.refuted(`its last leaf is the event at position ${position}, not at ${expected.position}`)
  else return true
  return false
}
