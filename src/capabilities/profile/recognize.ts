import type { CapabilityStorage, InputVerdict } from '../../call/capability.ts'
import { StreamMissing } from '../../event-log/port.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { CallFacts } from '../../events/calls.ts'
import { profileStream } from '../../events/streams.ts'
import { identifiersOf, type ProfileSettings } from './settings.ts'

/** Of one person: fetches and misses, each with at most some tens of hashes. */
const eventsMax = 10_000

/**
 * Whether a call was about the person of an identifier. Its facts name the person by an id of ours; the person's own stream has
 * the keyed hashes of every identifier they were known by, also after an erasure.
 */
export const recognizePerson = async (
  { eventLog, secrets, settings }: CapabilityStorage & { readonly settings: ProfileSettings },
  facts: CallFacts,
  text: string,
): Promise<InputVerdict | null> => {
  if (facts.kind !== 'profile') return null
  const ref = identifiersOf(settings).parse(text)
  if (ref === null) return { verdict: 'no', why: 'it is no profile id, profile URL or person URN' }
  const hmacs = secrets.identifierHmacs(`${ref.kind}:${ref.value}`)
  const events = await eventLog
    .read(profileStream(facts.subject_id), { max: eventsMax })
    .catch((error: unknown) => {
      if (error instanceof StreamMissing) return []
      throw error
    })
  if (events.length === 0) return { verdict: 'cannot_be_told', why: 'nothing is recorded of this person' }
  const aliases = events.map(decodeEvent).flatMap((event) => {
    if (event.type === 'ProfileFetched') return [...event.data.aliases, ...event.data.former_aliases]
    return event.type === 'ProfileMissed' ? event.data.aliases : []
  })
  const known = aliases.some((alias) => alias.kind === ref.kind && hmacs.includes(alias.hmac))
  return known
    ? { verdict: 'yes', why: 'it names the person; which of their identifiers was sent is not recorded' }
    : { verdict: 'no' }
}
