/**
 * A projector in the simulation: the real fold for key usage, over rows in memory. Rows and checkpoint are written in one step.
 * With the mistake `checkpointApart`, they are written one after the other, with an occasional crash in between.
 */

import { keyUsage } from '../../projections/key-usage.ts'
import type { ProjectedEvent } from '../../projections/projection.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { decodeBatch } from '../../src/projector/batch.ts'
import type { seededRandom } from '../ip-lookup/seeded-random.ts'
import type { MemoryEventLog } from '../support/memory-event-log.ts'

type Rows = Map<string, number>

const batchMax = 64

/** Adds up calls by key, day, capability and outcome, as the columns of the rows do. */
const apply = (rows: Rows, events: readonly ProjectedEvent[]): void => {
  if (!('fold' in keyUsage)) return
  for (const { table, rows: changed, set } of keyUsage.fold(events))
    for (const row of changed) {
      if (set.calls !== 't.calls + excluded.calls') continue
      const cell = table.key.map((column) => row[column]).join(' ')
      rows.set(cell, (rows.get(cell) ?? 0) + Number(row.calls))
    }
}

export const createProjector = ({
  log,
  organizationIds,
  random,
  apart,
}: {
  log: MemoryEventLog
  organizationIds: readonly string[]
  random: ReturnType<typeof seededRandom>
  apart: boolean
}) => {
  const rows: Rows = new Map()
  const checkpoints = new Map<string, number>()
  let stopped = false

  const project = (organizationId: string): void => {
    const from = checkpoints.get(organizationId) ?? 0
    const recorded = log
      .eventsOf(ledgerStream(organizationId))
      .slice(from, from + 1 + random.integer(batchMax))
    const crashes = !stopped && random.next() < 0.02
    // In one transaction, a crash loses both.
    if (crashes && !apart) return
    apply(rows, decodeBatch(recorded).events)
    if (!crashes) checkpoints.set(organizationId, from + recorded.length)
  }

  return {
    /** Projects a batch in one of ten calls. */
    tick: (): void => {
      if (random.next() < 0.1) project(random.pick(organizationIds))
    },
    /** The rows after everything has been projected. */
    rows: (): Rows => {
      stopped = true
      for (const organizationId of organizationIds)
        while ((checkpoints.get(organizationId) ?? 0) < log.eventsOf(ledgerStream(organizationId)).length)
          project(organizationId)
      return new Map([...rows].sort())
    },
    /** The rows from folding the whole log in one batch. */
    folded: (): Rows => {
      const whole: Rows = new Map()
      for (const organizationId of organizationIds)
        apply(whole, decodeBatch(log.eventsOf(ledgerStream(organizationId))).events)
      return new Map([...whole].sort())
    },
  }
}
