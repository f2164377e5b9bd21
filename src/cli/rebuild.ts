import { projections } from '../../projections/index.ts'
import { labelOf } from '../administration/input.ts'
import {
  cancelRebuilds,
  type RebuildResult,
  type RebuildRow,
  rebuild,
  rebuilds,
} from '../administration/projections/rebuilds.ts'
import { formatCredits } from '../billing/money.ts'
import type { TotalDifference } from '../projector/compare-totals.ts'
import { lossDigest, type OnlyInRows } from '../projector/only-in-rows.ts'
import { chosenOrAll, namesOf, projectionParameters, rateOf, reporter } from './chosen-projections.ts'
import { type Answer, type Command, type CommandContext, type Given, wholeOrNot } from './command.ts'
import { table } from './table.ts'

const reasonParameter = {
  name: 'reason',
  help: 'kept in the event log (default "asked by operator")',
} as const
const reasonOf = (given: Given): string => labelOf('reason', given.text('reason') ?? 'asked by operator')

const rebuilding: Command = {
  name: 'projection rebuild',
  summary: 'fold projections anew from the event log and switch; readers see the old rows until then',
  parameters: [
    ...projectionParameters,
    reasonParameter,
    { name: 'anew', help: 'begin at the start of the log, whatever a killed rebuild has left', kind: 'flag' },
    {
      name: 'accept-loss',
      help: 'of a restored log: the digest of what only the rows know, as the rebuild lists it; --yes does not agree to losing that',
    },
  ],
  changes: {
    of: 'rows',
    asks: 'on a terminal',
    left: 'The live rows are what they were, unless the switch was made: "projection rebuilds" says so, and "projection rebuild" goes on.',
    plan: async (_, given) => {
      const chosen = chosenOrAll(given)
      reasonOf(given)
      return {
        says: [
          `Rebuild ${namesOf(chosen)} from the event log, and switch if their totals are those of the log.`,
        ],
      }
    },
  },
  run: async (context, given) => {
    const chosen = chosenOrAll(given)
    const reason = reasonOf(given)
    let loss: string | null = null
    const foundation = await context.foundation({
      anyEventLog: chosen.length === projections.length,
      anyHistory: true,
    })
    const rebuilt = await rebuild(foundation, {
      projections: chosen,
      reason,
      ...foundation.operator,
      logger: context.logger,
      anew: given.flag('anew'),
      mayForget: async (lost) => {
        loss = lost.length === 0 ? null : lossDigest(lost)
        return mayForget(lost, given.text('accept-loss'), context)
      },
      onProgress: reporter(chosen, context),
    })
    return rebuilt.switched
      ? rebuiltAnswer(chosen, rebuilt)
      : {
          json: { projections: [], switched: false, loss },
          failed: true,
          lines: ['nothing was changed: the rows are as they were, and halted'],
        }
  },
}

const rebuiltAnswer = (
  chosen: Parameters<typeof namesOf>[0],
  { rebuildId, events, elapsedMs, resumed, differences }: RebuildResult,
): Answer => {
  const seconds = Math.round(elapsedMs) / 1000
  return {
    json: {
      rebuild_id: rebuildId,
      projections: chosen.map(({ name, version }) => ({ name, version })),
      events,
      seconds,
      events_per_second: rateOf(events, elapsedMs),
      resumed,
      differences,
    },
    lines: [
      `rebuilt ${namesOf(chosen)} from ${events} events in ${seconds} s${resumed ? ', going on where another rebuild was killed' : ''}`,
      ...differences.map(differenceLine),
      ...(differences.length === 0
        ? []
        : ['The rows before were wrong where they differ: the new ones have the totals of the event log.']),
    ],
  }
}

const differenceLine = ({ projection, organization_id, figure, live, rebuilt }: TotalDifference): string => {
  const told = (amount: string | null): string =>
    amount === null ? 'nothing' : figure === 'lines' ? amount : formatCredits(BigInt(amount))
  return `DIFFERENT  ${projection}  ${organization_id}  ${figure}: ${told(live)} before, ${told(rebuilt)} now`
}

const cancel: Command = {
  name: 'projection cancel',
  summary: 'end running rebuilds, wherever they run; the live rows stay as they are',
  parameters: projectionParameters,
  changes: {
    of: 'rows',
    asks: 'on a terminal',
    left: wholeOrNot('projection rebuilds'),
    plan: async ({ foundation }, given) => {
      const names = chosenOrAll(given).map(({ name }) => name)
      const running = (await rebuilds(await foundation({ anyHistory: true }))).filter(
        (one) => one.state === 'running' && one.projections.some((name) => names.includes(name)),
      )
      return {
        says: [
          running.length === 0
            ? `Nothing: no rebuild of ${names.join(', ')} is running. What a killed one left is dropped.`
            : `End ${running.map((one) => `the rebuild of ${one.projections.join(', ')} that ${one.actor} began`).join(', and ')}: what it has folded is dropped, and the live rows stay.`,
        ],
      }
    },
  },
  run: async ({ foundation }, given) => {
    const chosen = chosenOrAll(given)
    const open = await foundation({ anyHistory: true })
    const ended = await cancelRebuilds(open, { projections: chosen, ...open.operator })
    return {
      json: { cancelled: ended },
      lines: [
        ended.length === 0
          ? `no rebuild of ${namesOf(chosen)} is running`
          : `${ended.length} told to end; "projection rebuilds" says when they have`,
      ],
    }
  },
}

const listed: Command = {
  name: 'projection rebuilds',
  summary: 'the newest rebuilds: who asked, how far they are, what came of them',
  parameters: [],
  changes: 'nothing',
  run: async ({ foundation }) => {
    const rows = (await rebuilds(await foundation({ anyHistory: true }))).map(rowJson)
    return {
      json: rows,
      lines: table(
        rows.map(({ projections: names, differences, reason, ...row }) => ({
          ...row,
          projections: names.join(', '),
          differences: differences.length,
        })),
      ),
    }
  },
}

const rowJson = (one: RebuildRow) => ({
  rebuild_id: one.rebuildId,
  projections: one.projections,
  state: one.state,
  position: one.position.toString(),
  target: one.target.toString(),
  events: one.events,
  events_per_second: rateOf(one.events, one.elapsedMs),
  started_at: one.startedAt.toISOString(),
  ended_at: one.endedAt?.toISOString() ?? null,
  actor: one.actor,
  reason: one.reason,
  differences: one.differences,
  error: one.error,
})

export const rebuildCommands: readonly Command[] = [rebuilding, cancel, listed]

const lostMax = 1_000

/** Lists everything that a rebuild from a shorter log would lose, and asks. Standard output is reserved for the answer. */
const mayForget = async (
  lost: readonly OnlyInRows[],
  accepted: string | undefined,
  { ask }: CommandContext,
): Promise<boolean> => {
  if (lost.length === 0) return true
  const digest = lossDigest(lost)
  if (accepted === digest) return true
  return ask({
    says: [
      ...(accepted === undefined ? [] : [`What was agreed to (${accepted}) is not what would be lost now.`]),
      'The event log was restored from an older copy, or replaced. Only the rows know the following, and the rebuild forgets it:',
      ...lost.slice(0, lostMax).map(lostLine),
      ...(lost.length > lostMax ? [`  and ${lost.length - lostMax} more`] : []),
      `The digest of this list is ${digest}.`,
      'Revoked keys work again, erased people come back, and credits are as the log has them, until you repeat what is listed.',
    ],
    question: 'Rebuild from this log and forget the above?',
    unasked: { parameter: 'accept-loss', value: digest },
  })
}

const lostLine = ({ kind, what, organization_id, at, amount_micro }: OnlyInRows): string => {
  const amount = amount_micro === null ? null : `${formatCredits(BigInt(amount_micro))} credits`
  return [`  ${kind}`, what, organization_id, at, amount].filter((part) => part !== null).join('  ')
}
