import type { RerateLedgerPlanned, RerateProposed } from '../../events/rerates.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { planDigest, plannedOf, type RerateRun, RunChanged, readRun } from '../../ledger/rerate/run.ts'

type Proving = Pick<Foundation, 'eventLog' | 'checkpoints' | 'secrets'>

const hmac = 'hmac'
const signedText = (digest: string): string => `enrichment-ledger re-rate plan\n${digest}\n`

/** Signs with the key for checkpoints. If this key is not announced or not on this host, signs with a secret of the installation. */
export const signPlan = async (
  { checkpoints, secrets }: Pick<Foundation, 'checkpoints' | 'secrets'>,
  digest: string,
): Promise<RerateProposed['signature']> => {
  const signed = await checkpoints.sign(signedText(digest))
  return signed === null
    ? { signed_by: hmac, value: secrets.planSeal.of(signedText(digest)) }
    : { signed_by: signed.keyId, value: signed.value }
}

const isSigned = ({ checkpoints, secrets }: Proving, { plan_digest, signature }: RerateProposed) => {
  const text = signedText(plan_digest)
  const { signed_by: keyId, value } = signature
  return keyId === hmac ? secrets.planSeal.fits(text, value) : checkpoints.isSigned(text, { keyId, value })
}

export type ProvedRun = RerateRun & { readonly proposed: NonNullable<RerateRun['proposed']> }

/** Reads a run. Throws a `CommandRefused` that names the difference if the run's plan is not the proposed plan. */
export const provedRun = async (proving: Proving, run: string): Promise<ProvedRun> => {
  const found = await readRun(proving.eventLog, run).catch((error: unknown) => {
    throw error instanceof RunChanged ? new CommandRefused(error.message) : error
  })
  const { proposed } = found
  if (found.revision === -1) throw new CommandRefused(`there is no re-rate ${run}; see "rerate list"`)
  if (proposed === null)
    throw new CommandRefused(
      `the plan of ${run} was never completed: plan the re-rate again with "rerate plan"`,
    )
  if (planDigest(plannedOf(proposed), found.ledgers.values()) !== proposed.plan_digest)
    throw new CommandRefused(
      `the plan of ${run} was changed: its events do not match the digest it was proposed with`,
    )
  if (!(await isSigned(proving, proposed)))
    throw new CommandRefused(
      `the plan of ${run} names ${proposed.signature.signed_by} as the signer, but the signature is not valid`,
    )
  return { ...found, proposed }
}

type PlanFile = { readonly proposed: RerateProposed; readonly ledgers: readonly RerateLedgerPlanned[] }

/** The content of a plan's file. */
export const planFileOf = ({ proposed, ledgers }: PlanFile) => ({
  plan: plannedOf(proposed),
  ledgers: [...ledgers],
  plan_digest: proposed.plan_digest,
  signature: proposed.signature,
})

/** Throws a `CommandRefused` that names the first difference if a plan file does not match the plan of the run. */
export const checkPlanFile = ({ run, proposed, ledgers }: ProvedRun, content: unknown): void => {
  const own = planFileOf({ proposed, ledgers: [...ledgers.values()] })
  const file = typeof content === 'object' && content !== null ? (content as Record<string, unknown>) : {}
  const differs = (what: string): never => {
    throw new CommandRefused(`the given plan is not the plan of ${run}: ${what} differs`)
  }
  for (const part of ['plan', 'plan_digest', 'signature'] as const)
    if (JSON.stringify(file[part]) !== JSON.stringify(own[part])) differs(part)
  const theirs = Array.isArray(file.ledgers) ? (file.ledgers as unknown[]) : []
  for (const [i, ledger] of own.ledgers.entries())
    if (JSON.stringify(theirs[i]) !== JSON.stringify(ledger))
      differs(`its part about ${ledger.organization_id}`)
  if (theirs.length !== own.ledgers.length) differs('its number of ledgers')
}
