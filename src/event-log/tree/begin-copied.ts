import type { EventLog } from '../port.ts'
import { appendedTo, treeBegun } from './append.ts'
import { createStreamReader } from './checkpoint-stream.ts'

/**
 * Begins a new tree for a copied log, because its events are in another order. The first leaf is the last checkpoint that was copied. Does
 * nothing if no checkpoint was copied, or if the new tree has already begun.
 */
export const beginCopiedTree = async ({
  from,
  to,
}: {
  readonly from: Pick<EventLog, 'read'>
  readonly to: Pick<EventLog, 'read' | 'append'>
}): Promise<void> => {
  const [source, target] = await Promise.all([createStreamReader(from)(), createStreamReader(to)()])
  if (target.tree === null || target.tree.origin !== source.tree?.origin) return
  if (!(await appendedTo(to, target, [treeBegun(target.lastOfAll?.note ?? null)])))
    throw new Error('another process is writing to the target. Stop it, and start the copy again')
}
