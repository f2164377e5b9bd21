import type { EventMetadata } from '../../events/envelope.ts'
import { digestAfter, genesisDigest } from '../hash-chain.ts'
import type { EventLog, RecordedEvent } from '../port.ts'
import type { Checkpoints } from './checkpoints.ts'
import type { InclusionProof } from './prove.ts'

/** An event in a receipt. Metadata and data are exact strings, because the digest covers their bytes. */
type ReceiptEvent = {
  readonly stream: string
  readonly revision: number
  readonly event_id: string
  readonly type: string
  readonly metadata: string
  readonly data: string
  readonly previous_digest: string
  /** The proof of inclusion, in the format of C2SP tlog-proof. */
  readonly proof: string
}

/** Proves the events of a call to a third party. `test/support/verify-receipt.ts` verifies it offline. */
export type Receipt = {
  readonly request_id: string
  readonly verifier_key: string
  readonly events: readonly ReceiptEvent[]
}

/** The call and its charge. */
const eventsMax = 2

/**
 * Returns the receipt for a call, by the revision of its first event, or null if no checkpoint covers all of its events yet. Throws `ProofFault` if
 * the stored tiles do not match the log, and the errors of the event log.
 */
export const receiptOf = async (
  {
    eventLog,
    checkpoints,
  }: { eventLog: Pick<EventLog, 'read'>; checkpoints: Pick<Checkpoints, 'proofOfInclusion'> },
  { stream, revision, requestId }: { stream: string; revision: number; requestId: string },
): Promise<Receipt | null> => {
  const from = Math.max(0, revision - 1)
  const page = await eventLog.read(stream, { from, max: revision - from + eventsMax })
  const call = page.find((event) => event.revision === revision)
  if (call === undefined) return null
  const charge = page.find(
    (event) => event.revision === revision + 1 && metadataOf(event).causation_id === call.id,
  )
  const events: ReceiptEvent[] = []
  let signer: string | undefined
  for (const event of charge === undefined ? [call] : [call, charge]) {
    const proof = await checkpoints.proofOfInclusion(event.position)
    if (proof === null) return null
    signer = proof.verifierKey
    const before = page.find((one) => one.revision === event.revision - 1)
    const { stream: name, id: event_id, type, metadata, data } = event
    events.push({
      stream: name,
      revision: event.revision,
      event_id,
      type,
      metadata,
      data,
      previous_digest: before === undefined ? genesisDigest : digestAfter(before),
      proof: proofText(proof),
    })
  }
  return signer === undefined ? null : { request_id: requestId, verifier_key: signer, events }
}

const metadataOf = ({ metadata }: RecordedEvent): EventMetadata => JSON.parse(metadata) as EventMetadata

/** Returns the proof in the format of https://c2sp.org/tlog-proof. */
const proofText = ({ index, hashes, note }: InclusionProof): string =>
  ['c2sp.org/tlog-proof@v1', `index ${index}`, ...hashes, '', note].join('\n')
