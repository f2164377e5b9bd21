import { listCheckpoints, signCheckpoint, verifyEventLog } from '../administration/event-log/checkpoints.ts'
import { InputFault, labelOf, wholeNumber } from '../administration/input.ts'
import type { LogFault, LogVerdict } from '../event-log/verify/verify-log.ts'
import { type Command, wholeOrNot } from './command.ts'
import { readTextFile } from './files.ts'

const noteBytesMax = 100_000
const listedDefault = '20'

const verify: Command = {
  name: 'event-log verify',
  summary:
    'read the whole event log and prove it: every hash chain and its end, every signed checkpoint, the stored tree; names what is broken',
  parameters: [
    {
      name: 'against',
      help: 'a file with a checkpoint kept outside: proves that this log extends it',
      kind: 'file',
    },
  ],
  changes: 'nothing',
  run: async ({ foundation, progress }, given) => {
    const path = given.text('against')
    const against = path === undefined ? undefined : await readTextFile('against', path, noteBytesMax)
    const verdict = await verifyEventLog(await foundation({ anyHistory: true }), {
      against,
      onProgress: ({ events, position, head, elapsedMs }) =>
        progress(
          `${events} events, position ${position} of ${head}, ${Math.round((events * 1_000) / Math.max(1, elapsedMs))} events/s`,
        ),
    })
    const failed = verdict.faults.length > 0
    return {
      json: verdictJson(verdict),
      failed,
      lines: failed ? verdict.faults.map(faultLine) : soundLines(verdict),
    }
  },
}

const verdictJson = ({ events, streams, known, checkpoints, against, faults }: LogVerdict) => {
  const { recomputed, earlier, last, announced } = checkpoints
  return {
    ok: faults.length === 0,
    streams,
    events,
    known_faults: known,
    checkpoints: {
      recomputed,
      earlier_trees: earlier,
      last:
        last === null
          ? null
          : { origin: last.origin, size: last.size, root: last.root, recorded_at: last.at },
      keys_without_predecessor: announced,
    },
    against,
    faults,
  }
}

const faultLine = ({ stream, revision, event_id, fault }: LogFault): string => {
  const place = revision === null ? '' : `  revision ${revision}`
  return `BROKEN  ${stream}${place}${event_id === null ? '' : `, event ${event_id}`}: ${fault}`
}

const soundLines = ({ streams, events, known, checkpoints, against }: LogVerdict): string[] => [
  `ok      ${streams} streams, ${events} events, ${checkpoints.recomputed} checkpoints`,
  ...(checkpoints.earlier === 0
    ? []
    : [
        `note    ${checkpoints.earlier} checkpoints are of logs this one was copied from: their signatures hold`,
      ]),
  ...(known === 0 ? [] : [`known   ${known} broken events that were acknowledged; see "ledger verify"`]),
  ...checkpoints.announced.map(
    ({ key_id, reason }) => `note    the signing key ${key_id} was announced by an operator alone: ${reason}`,
  ),
  ...(against === null ? [] : [`ok      ${extended(against)}`]),
]

const extended = ({ origin, size, verdict }: NonNullable<LogVerdict['against']>): string =>
  verdict === 'extended'
    ? `the log extends the checkpoint of ${size} leaves of ${origin}`
    : `the log is a copy, and its tree begins with this checkpoint of ${size} leaves of ${origin}`

const sign: Command = {
  name: 'event-log checkpoint',
  summary:
    'sign a checkpoint of the whole event log now, and print it: keep it outside, for event-log verify --against',
  parameters: [{ name: 'rebuild', help: 'make the stored tree anew from the log first', kind: 'flag' }],
  changes: {
    of: 'records',
    asks: 'never',
    left: wholeOrNot('event-log checkpoints'),
    plan: async (_, given) => ({
      says: [
        ...(given.flag('rebuild') ? ['Make the stored tree anew from the log.'] : []),
        'Sign a checkpoint of the whole event log as it is now, and record it.',
      ],
    }),
  },
  run: async ({ foundation }, given) => {
    const { origin, size, root, position, note, at } = await signCheckpoint(await foundation(), {
      rebuild: given.flag('rebuild'),
    })
    return {
      json: { origin, size, root, position, note, recorded_at: at },
      lines: note.trimEnd().split('\n'),
    }
  },
}

const list: Command = {
  name: 'event-log checkpoints',
  summary: 'the newest checkpoints, newest first',
  parameters: [{ name: 'max', help: `how many (default ${listedDefault})` }],
  changes: 'nothing',
  run: async ({ foundation }, given) => {
    const max = wholeNumber('max', given.text('max') ?? listedDefault, { min: 1, max: 1_000 })
    const checkpoints = await listCheckpoints(await foundation({ anyHistory: true }), max)
    return {
      json: checkpoints,
      sections: [
        checkpoints.map(({ recorded_at, size, root, origin }) => ({ recorded_at, size, root, origin })),
      ],
    }
  },
}

const consistency: Command = {
  name: 'event-log consistency',
  summary: 'the proof (RFC 6962) that the tree at an earlier size is the beginning of the last checkpoint',
  parameters: [{ name: 'size', help: 'leaves of the earlier checkpoint', required: true }],
  changes: 'nothing',
  run: async ({ foundation }, given) => {
    const size = wholeNumber('size', given.required('size'), { min: 1, max: Number.MAX_SAFE_INTEGER })
    const proof = await (await foundation()).checkpoints.proofOfConsistency(size)
    if (proof === null) throw new InputFault('size', 'there is no checkpoint yet; see "event-log checkpoint"')
    const { root, hashes, checkpoint } = proof
    return { json: { size, root, hashes, note: checkpoint.note } }
  },
}

const announce: Command = {
  name: 'event-log announce-key',
  summary:
    'sign checkpoints with a new key from now on: the present one vouches for it; where KEY_DIR was lost, your reason does',
  parameters: [{ name: 'reason', help: 'kept in the event log', required: true }],
  changes: {
    of: 'access',
    asks: 'always',
    left: wholeOrNot('event-log verify'),
    plan: async (_, given) => {
      labelOf('reason', given.required('reason'))
      return { says: ['Sign every later checkpoint with a new key; the present one signs none any more.'] }
    },
  },
  run: async ({ foundation }, given) => {
    const reason = labelOf('reason', given.required('reason'))
    const open = await foundation()
    const { keyId, vouchedFor } = await open.checkpoints.announceKey({ ...open.operator, reason })
    return { json: { key_id: keyId, vouched_for_by_previous: vouchedFor, announced_by: open.operator.actor } }
  },
}

export const checkpointCommands: readonly Command[] = [verify, sign, list, consistency, announce]
