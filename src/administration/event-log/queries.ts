import { z } from 'zod'
import { auditedTypes } from '../../events/audited.ts'
import { pagedList } from '../declare.ts'
import { choice, flag, instant, line } from '../fields.ts'
import { InputFault } from '../input.ts'
import { auditEntries } from './audit.ts'

const audit = pagedList({
  name: 'audit list',
  action: 'audit.read',
  summary: 'list who changed what: every change by anyone, and sign-ins, but no calls',
  input: z.object({
    since: instant({
      label: 'Since (UTC)',
      help: 'recorded at this instant or later, such as 2027-01-31',
    }).optional(),
    actor: line({ label: 'By', help: 'by this one only: ada, or as the list says, user:ada' }).optional(),
    about: line({
      label: 'About',
      help: 'about this only: an id of an organization, key or webhook, a user, a projection',
    }).optional(),
    type: choice(
      { label: 'Type', help: 'events of this type only, such as CreditGranted' },
      auditedTypes,
    ).optional(),
    oldest_first: flag({ label: 'Oldest first', help: 'the oldest first, in place of the newest' }),
  }),
  columns: [
    { name: 'at', label: 'When (UTC)', kind: 'instant' },
    { name: 'actor', label: 'By' },
    { name: 'says', label: 'What' },
    { name: 'organization_id', label: 'Organization', kind: 'organization' },
    { name: 'position', label: 'Position', kind: 'position' },
  ],
  cursor: 'position',
  rows: async function* ({ foundation, caughtUp }, { since, actor, about, type, oldest_first }, stretch) {
    const { cursor: after, max } = stretch
    if (after !== null && !/^\d{1,19}$/.test(after))
      throw new InputFault('cursor', `"${after}" is not a position of the event log`)
    await caughtUp()
    const filter = {
      since: since ?? null,
      actors: actor === undefined ? null : actorsOf(actor),
      about: about ?? null,
      type: type ?? null,
      oldestFirst: oldest_first,
    }
    for await (const { organizationId, ...entry } of auditEntries(foundation, filter, { max, after })) {
      const { at, actor, type, says, about, stream, revision, position } = entry
      yield { at, actor, type, says, organization_id: organizationId, about, stream, revision, position }
    }
  },
  lacks: async ({ foundation: { pool } }) => {
    const { rows } = await pool.query<{ n: number }>(
      `select count(*)::int as n from parked_events where projection = 'audit' and released_at is null`,
    )
    const [{ n } = { n: 0 }] = rows
    return n === 0
      ? null
      : `${n} events cannot be read by this release and are not among these: "projection parked audit"`
  },
})

/** `ada` matches the person, the label and the key of that name; `user:ada` only the person. */
const actorsOf = (actor: string): string[] =>
  actor.includes(':') ? [actor] : [actor, `user:${actor}`, `cli:${actor}`, `key:${actor}`]

export const eventLogQueries = [audit]
