import { upstreamUnavailable } from '../../call/errors.ts'
import type { CallDecision, Caller, StreamedBody } from '../../call/form.ts'
import { publishedBooks } from '../../call/own-account.ts'
import { createFairShare } from '../../concurrency/fair-share.ts'
import { type EventLog, type RecordedEvent, Unavailable } from '../../event-log/port.ts'
import type { PriceBookPublished } from '../../events/prices.ts'
import { ledgerStream } from '../../events/streams.ts'
import type { ExportInput } from './parse.ts'

/**
 * Exports a partner's own ledger as JSON Lines. Each event contains the exact text of its metadata and data, including operators' names, because the
 * digests cover these bytes. A changed or shortened event could not be verified.
 */

const pageMax = 500
/** The maximum number of concurrent exports of all organizations in one process. Each export has a page of events in memory. */
const exportsMax = 8
/** The time after which an export that has not begun no longer counts. An export counts before its call is recorded. */
const unusedMaxMs = 60_000

type ExportFindings =
  | 'too_many'
  | {
      readonly organizationId: string
      readonly from: number
      readonly through: number
      readonly head: number
      /** The digest of the event before the first one. The chain continues from it. */
      readonly previousDigest: string | null
      readonly books: readonly PriceBookPublished[]
      readonly place: Place
    }
type LedgerExport = Exclude<ExportFindings, string>

type Place = { begin(): void; leave(): void }

type Exports = {
  gather(input: ExportInput, caller: Pick<Caller, 'key'>): Promise<ExportFindings>
  decide(findings: ExportFindings): CallDecision<LedgerExport>
  stream(found: LedgerExport): StreamedBody
}

export const createExports = (eventLog: Pick<EventLog, 'read'>): Exports => {
  const exports = createFairShare(() => exportsMax)
  const placeFor = (organizationId: string): Place | null => {
    const leave = exports.enter(organizationId)
    if (leave === null) return null
    const unused = setTimeout(leave, unusedMaxMs).unref()
    return { begin: () => clearTimeout(unused), leave }
  }
  return {
    gather: async ({ fromRevision: from, max }, { key: { organizationId } }) => {
      const place = placeFor(organizationId)
      if (place === null) return 'too_many'
      try {
        const stream = ledgerStream(organizationId)
        const [last] = await eventLog.read(stream, { direction: 'backwards', max: 1 })
        const head = last?.revision ?? -1
        const [before] =
          from === 0 || from > head + 1 ? [] : await eventLog.read(stream, { from: from - 1, max: 1 })
        return {
          organizationId,
          from,
          head,
          place,
          through: Math.max(from - 1, Math.min(head, from + max - 1)),
          previousDigest: before === undefined ? null : digestIn(before),
          books: await publishedBooks(eventLog),
        }
      } catch (error) {
        place.leave()
        throw error
      }
    },
    decide: (findings) =>
      findings === 'too_many'
        ? { refusal: upstreamUnavailable(5) }
        : {
            result: findings,
            facts: {
              kind: 'ledger_export',
              from_revision: findings.from,
              through_revision: findings.through,
            },
          },
    stream: (found) => ({
      type: 'application/jsonl; charset=utf-8',
      headers: linkOf(found),
      chunks: async function* () {
        found.place.begin()
        try {
          yield* linesOf(eventLog, found)
        } finally {
          found.place.leave()
        }
      },
    }),
  }
}

const nextOf = ({ through, head }: LedgerExport): number | null => (through < head ? through + 1 : null)

const linkOf = (found: LedgerExport): Record<string, string> => {
  const next = nextOf(found)
  return next === null ? {} : { link: `</v1/ledger/export?from_revision=${next}>; rel="next"` }
}

async function* linesOf(eventLog: Pick<EventLog, 'read'>, found: LedgerExport): AsyncGenerator<string> {
  const { organizationId, from, through } = found
  const stream = ledgerStream(organizationId)
  yield line(headerOf(found))
  let digest = found.previousDigest
  for (let next = from; next <= through; ) {
    const page = await eventLog.read(stream, { from: next, max: Math.min(pageMax, through - next + 1) })
    const last = page.at(-1)
    if (last === undefined) throw new Unavailable(`${stream} ends before revision ${next}`)
    yield page.map((event) => line(eventOf(event))).join('')
    digest = digestIn(last)
    next = last.revision + 1
  }
  yield line({ kind: 'end', through_revision: through, digest, next_revision: nextOf(found) })
}

const line = (value: object): string => `${JSON.stringify(value)}\n`

const headerOf = (found: LedgerExport) => ({
  kind: 'ledger',
  organization_id: found.organizationId,
  stream: ledgerStream(found.organizationId),
  from_revision: found.from,
  through_revision: found.through,
  head_revision: found.head,
  next_revision: nextOf(found),
  previous_digest: found.previousDigest,
  price_books: found.books.map(({ version, effective_from, rules }) => ({
    version,
    effective_from,
    rules: rules.map(({ rule, rule_version, sku, amount }) => ({ rule, rule_version, sku, amount })),
  })),
})

const eventOf = ({ stream, revision, id, type, metadata, data }: RecordedEvent) => ({
  kind: 'event',
  stream,
  revision,
  event_id: id,
  type,
  metadata,
  data,
})

const digestIn = ({ metadata }: RecordedEvent): string | null =>
  (JSON.parse(metadata) as { readonly digest?: string }).digest ?? null
