import type { FastifyReply } from 'fastify'
import { LedgerUnavailable } from '../ledger/commit.ts'
import { send } from './answer.ts'
import {
  type Admitted,
  type CallRoom,
  deliver,
  headersOf,
  lastSeen,
  observe,
  record,
  refuse,
  rendered,
} from './conclude.ts'
import { idempotencyInFlight, idempotencyMismatch } from './errors.ts'
import type { JsonObject } from './form.ts'
import { claimWaitMs, type IdempotencyClaim } from './idempotency.ts'
import { waitLeftMs } from './waiting.ts'

/** Under a claim: the call's events were in the ledger before it was recorded, and nothing was answered. */
export type WrittenBefore = 'written before'

/** The sequence of a call without an Idempotency-Key, from its body on. */
type AnswerOnce = (
  room: CallRoom,
  admitted: Admitted,
  body: JsonObject,
) => Promise<FastifyReply | WrittenBefore>

/** Answers a call with an Idempotency-Key: the first answer again, or the first time under a claim. */
export const answerIdempotent = async (
  room: CallRoom,
  admitted: Admitted,
  body: JsonObject,
  answerOnce: AnswerOnce,
  claim: IdempotencyClaim,
): Promise<FastifyReply> => {
  // Needed in any case, and what is read for it is not read again to look for the key.
  await lastSeen(room, admitted, claimWaitMs)
  const claimed = await room.idempotency.claim(claim)
  switch (claimed.kind) {
    case 'in_flight':
      return refuse(room, admitted, idempotencyInFlight())
    case 'mismatch':
      return refuse(room, admitted, idempotencyMismatch())
    case 'replay': {
      // The replay is a call of its own: free, and recorded as what it is.
      const outcome = claimed.answer.status < 400 ? 'answered' : 'refused'
      const { balance } = await record(room, admitted, { outcome, facts: { kind: 'replay' } })
      const headers = {
        ...headersOf(admitted, { charged: 0n, remaining: balance }),
        'idempotent-replayed': 'true',
      }
      observe(room, admitted, undefined, 0n)
      return send(admitted.reply, { status: claimed.answer.status, headers, body: claimed.answer.body })
    }
    case 'charged':
      try {
        return await answerCharged(room, { ...admitted, owes: claimed }, body, claim)
      } finally {
        // Where an answer was kept the claim stays; a refusal or a failure this time leaves the key to be asked again.
        await room.idempotency.handBack(claim).catch(() => undefined)
      }
    case 'first':
      try {
        const attempt = { number: claimed.attempt, absentUpTo: claimed.absentUpTo }
        const answered = await answerOnce(room, { ...admitted, claim, attempt }, body)
        return answered === 'written before' ? await answerWritten(room, admitted, body, claim) : answered
      } catch (error) {
        // Nothing was written, or nobody knows: the ledger is asked again when the key comes back, with the same request.
        await room.idempotency.handBack(claim).catch(() => undefined)
        throw error
      }
  }
}

/** With less left the caller is told to ask again: then its charge is found at once. */
const gatherAgainMs = 4_000

/**
 * Another process wrote the call while this one made it, and may have refused its caller: then it gives the charge back unless
 * the charge is settled first. What the ledger says now decides, as if the request came only now.
 */
const answerWritten = async (
  room: CallRoom,
  admitted: Admitted,
  body: JsonObject,
  claim: IdempotencyClaim,
): Promise<FastifyReply> => {
  const claimed = await room.idempotency.lookAgain(claim)
  if (claimed.kind === 'mismatch') return refuse(room, admitted, idempotencyMismatch())
  if (claimed.kind !== 'charged') throw new LedgerUnavailable('the charge was given back meanwhile')
  if (waitLeftMs(admitted) < gatherAgainMs)
    throw new LedgerUnavailable('there is no time to make the call again')
  return answerCharged(room, { ...admitted, owes: claimed }, body, claim)
}

/** The charge stands, the answer is gone: the call is made again, as a free replay. */
const answerCharged = async (
  room: CallRoom,
  admitted: Admitted,
  body: JsonObject,
  claim: IdempotencyClaim,
): Promise<FastifyReply> => {
  const { form, key, atMs, requestId } = admitted
  const parsed = form.parse(body)
  const decision =
    'refusal' in parsed
      ? parsed
      : form.decide(
          await form.gather(parsed.input, {
            key,
            atMs,
            requestId,
            repeated: admitted.owes?.call ?? null,
            reserve: async () => undefined,
          }),
          parsed.input,
        )
  if ('refusal' in decision) return refuse(room, admitted, decision.refusal)
  const written = rendered(form, decision)
  const { events, balance } = await record(room, admitted, { outcome: 'answered', facts: { kind: 'replay' } })
  // The process that had refused the call was first: the next request with the key is a first one again, and charged.
  if (events.some(({ type }) => type === 'CreditAdjusted'))
    throw new LedgerUnavailable('the charge was given back meanwhile')
  admitted.reply.header('idempotent-replayed', 'true')
  const paidRevision = admitted.owes?.revision ?? null
  return deliver(room, { ...admitted, claim, paidRevision }, written, { charged: 0n, remaining: balance })
}
