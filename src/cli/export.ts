import { eventLine } from '../administration/event-log/event-json.ts'
import { InputFault, instantOf, wholeNumber } from '../administration/input.ts'
import { exportLedger, type LedgerRange, organizationsOf } from '../administration/ledgers/ledgers.ts'
import { type Command, UsageError } from './command.ts'
import { outputParameters, withOutput } from './output.ts'

const revisionBounds = { min: 0, max: Number.MAX_SAFE_INTEGER }

export const exportCommand: Command = {
  name: 'ledger export',
  summary: 'write ledgers event by event, one a line (JSON Lines; --json: one array)',
  parameters: [
    { name: 'org', help: 'organization id; not with --all' },
    { name: 'from', help: 'first revision, or the instant from which events are effective (default: all)' },
    { name: 'to', help: 'last revision, or the instant before which events are effective (default: all)' },
    { name: 'all', help: 'of every organization, one after the other', kind: 'flag' },
    ...outputParameters,
  ],
  changes: 'nothing',
  run: async ({ foundation, json, progress, write }, given) => {
    const all = given.flag('all')
    if (all && given.text('org') !== undefined)
      throw new UsageError('give an organization or --all, not both')
    const asked = all ? null : given.required('org')
    const range = rangeOf(given.text('from'), given.text('to'))
    const opened = await foundation({ anyHistory: true })
    const organizations = asked === null ? await organizationsOf(opened) : [asked]
    const events = await withOutput({ write }, given, async (output) => {
      let written = 0
      for (const organizationId of organizations)
        await exportLedger(opened, { organizationId, range }, async (page) => {
          let text = ''
          for (const event of page) {
            const separator = json ? (written === 0 ? '[' : ',') : ''
            text += `${separator}${eventLine(event)}${json ? '' : '\n'}`
            written++
          }
          await output(text)
          progress(`${organizationId}: ${written} events`)
        })
      if (json) await output(written === 0 ? '[]\n' : ']\n')
      return written
    })
    const out = given.text('out')
    return {
      json: { organizations: organizations.length, events },
      lines: [`${out}: ${events} events`],
      ...(out === undefined ? { written: true } : {}),
    }
  },
}

/** Both ends are of one kind. A text of digits only is a revision. */
const rangeOf = (from: string | undefined, to: string | undefined): LedgerRange => {
  const given = [from, to].filter((text) => text !== undefined)
  const isRevision = (text: string): boolean => /^\s*\d+\s*$/.test(text)
  if (given.every(isRevision)) {
    const range = {
      by: 'revision',
      from: from === undefined ? 0 : wholeNumber('from', from, revisionBounds),
      to: to === undefined ? null : wholeNumber('to', to, revisionBounds),
    } as const
    if (range.to !== null && range.to < range.from)
      throw new InputFault('to', `${to} is before --from ${from}`)
    return range
  }
  if (given.some(isRevision)) throw new InputFault('to', 'give two revisions or two instants')
  const range = {
    by: 'time',
    from: from === undefined ? null : instantOf('from', from),
    until: to === undefined ? null : instantOf('to', to),
  } as const
  if (range.from !== null && range.until !== null && range.until <= range.from)
    throw new InputFault('to', `${to} is not after --from ${from}`)
  return range
}
