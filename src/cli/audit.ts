import {
  type AuditEntry,
  auditEntries,
  auditFilterOf,
  auditLeftOut,
} from '../administration/event-log/audit.ts'
import { wholeNumber } from '../administration/input.ts'
import { catchUp } from '../administration/projections/catch-up.ts'
import type { Command } from './command.ts'

const limitDefault = 100
const limitMax = 1_000_000
const lineOf = ({ at, actor, says, organizationId }: AuditEntry): string => {
  const where = organizationId === null || says.includes(organizationId) ? '' : `  (${organizationId})`
  // Text from others must not move the reader's cursor.
  return `${at}  ${actor}  ${says}${where}`.replace(/\p{Cc}/gu, '\u{fffd}')
}

const jsonOf = (entry: AuditEntry) => ({
  at: entry.at,
  actor: entry.actor,
  type: entry.type,
  says: entry.says,
  organization_id: entry.organizationId,
  about: entry.about,
  stream: entry.stream,
  revision: entry.revision,
  position: entry.position,
})

const list: Command = {
  name: 'audit list',
  summary:
    'who changed what, the newest first: every change by anyone, sign-ins too; calls are not among them',
  parameters: [
    { name: 'since', help: 'recorded at this instant or later, such as 2027-01-31' },
    { name: 'actor', help: 'by this one only: ada, or as the list says, user:ada' },
    {
      name: 'about',
      help: 'about this only: an id of an organization, key or webhook, a user, a projection',
    },
    { name: 'type', help: 'events of this type only, such as CreditGranted' },
    { name: 'limit', help: `how many at most (default ${limitDefault}, at most ${limitMax})` },
    { name: 'oldest-first', help: 'the oldest first', kind: 'flag' },
  ],
  changes: 'nothing',
  run: async ({ foundation, logger, json, write }, given) => {
    const limit = given.text('limit')
    const filter = auditFilterOf({
      since: given.text('since'),
      actor: given.text('actor'),
      about: given.text('about'),
      type: given.text('type'),
      oldestFirst: given.flag('oldest-first'),
    })
    const max = limit === undefined ? limitDefault : wholeNumber('limit', limit, { min: 1, max: limitMax })
    const open = await foundation()
    // The audit shows only rows, so first bring them up to date with the event log.
    await catchUp(open, logger)
    let told = 0
    for await (const entry of auditEntries(open, filter, { max })) {
      const text = json ? JSON.stringify(jsonOf(entry)) : lineOf(entry)
      await write(json ? `${told === 0 ? '[\n' : ',\n'}${text}` : `${text}\n`)
      told++
    }
    if (json) await write(told === 0 ? '[]\n' : '\n]\n')
    else if (told === 0) await write('nothing was found\n')
    const leftOut = await auditLeftOut(open)
    if (leftOut > 0)
      process.stderr.write(
        `${leftOut} events cannot be read by this release and are not among these: "projection parked audit"\n`,
      )
    return { json: [], written: true, failed: leftOut > 0 }
  },
}

export const auditCommands: readonly Command[] = [list]
