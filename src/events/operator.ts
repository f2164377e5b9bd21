import { z } from 'zod'
import { signingKeyId, treeOrigin } from './checkpoints.ts'
import { instant, keyedHmac, label, organizationId, publicId, uuid } from './primitives.ts'

/** Operators' actions on the installation itself: projections, the event log, tokens, jobs and backups. */

const job = z.string().min(1).max(64)
const projection = z.string().max(64)
const position = z.string().regex(/^\d{1,20}$/)
const sha256 = z.string().regex(/^[0-9a-f]{64}$/)

/** An operator requested that projections be rebuilt from the event log. */
export const rebuildRequestedV1 = z.object({ projections: z.array(z.string().max(64)).min(1), reason: label })

/** The event log accepts appends again, after appends by one process had failed since `failing_since`. */
export const appendsResumedV1 = z.object({ failing_since: instant })

/**
 * An operator has acknowledged that this event, with its current bytes, breaks the chain or the rules. Verification then
 * reports it as known. `digest` is the digest of those bytes. If the bytes change again, it is a new fault.
 */
export const ledgerFaultAcknowledgedV1 = z.object({
  organization_id: organizationId,
  revision: z.int().nonnegative(),
  digest: z.string().length(43),
  reason: label,
})

/**
 * A user has a token for the command line. Actions with the token are recorded as actions of that user. `secret_hmac` is
 * stored instead of the secret. `user_created_at` distinguishes the user from a later user with the same name.
 */
export const operatorTokenIssuedV1 = z.object({
  token_id: publicId,
  user: label,
  user_created_at: instant,
  secret_hmac: keyedHmac,
})
export type OperatorTokenIssued = z.infer<typeof operatorTokenIssuedV1>

/** The token is refused from now on. */
export const operatorTokenRevokedV1 = z.object({ token_id: publicId, user: label })

/**
 * Ledgers were compared with their read models and the tariff. For each ledger with new events, `ledgers` contains the
 * revision up to which it was compared; the next run continues there. `whole`: ledgers were compared from their
 * beginning. `named` lists the first differences.
 */
export const ledgersReconciledV1 = z.object({
  whole: z.boolean(),
  ledgers: z.array(z.object({ organization_id: organizationId, revision: z.int().nonnegative() })).max(1_000),
  calls: z.int().nonnegative(),
  differences: z.int().nonnegative(),
  named: z.array(z.string().max(400)).max(20),
})

const signature = z.string().regex(/^[A-Za-z0-9_-]{86}$/)

/**
 * Like version 1, with a signature over `ledgers`, so that the next run does not trust a forged event. The signature is
 * null if the signing key was missing. In the operators' stream, `ledgers` is empty and `ledger_count` is its length; the
 * ledgers are in events in `reconciled-<month>`.
 */
export const ledgersReconciledV2 = ledgersReconciledV1.extend({
  ledger_count: z.int().nonnegative().optional(),
  signed: z.object({ key_id: signingKeyId, signature }).nullable(),
})

/**
 * The event log was verified. `faults` is the number of streams with a broken or incomplete chain, and of signed
 * checkpoints that the log contradicts, up to 100. `named` lists the first faults. `known` is the number of broken events
 * that an operator has acknowledged. `after` is the number of leaves that were verified earlier and not read again; 0:
 * the log was read from its beginning. `through` is the last checkpoint up to which everything has been verified, or
 * null. It is signed, so that it cannot be forged.
 */
export const logVerifiedV1 = z.object({
  events: z.int().nonnegative(),
  streams: z.int().nonnegative(),
  checkpoints: z.int().nonnegative(),
  known: z.int().nonnegative(),
  faults: z.int().nonnegative(),
  named: z.array(z.string().max(400)).max(20),
  after: z.int().nonnegative(),
  through: z
    .object({
      origin: treeOrigin,
      size: z.int().nonnegative(),
      root: z.string().regex(/^[A-Za-z0-9+/]{43}=$/),
      key_id: signingKeyId,
      signature,
    })
    .nullable(),
})
export type LogVerified = z.infer<typeof logVerifiedV1>

/** An operator started a job. `run_id` is its id in the queue. */
export const jobRequestedV1 = z.object({ job, run_id: uuid })

/**
 * Someone searched an organization's calls between two instants for an e-mail address, IP address or profile id. The
 * event contains neither the search text nor a hash of it, because these could identify an erased person.
 */
export const callsSearchedV1 = z.object({ organization_id: organizationId, from: instant, to: instant })

/** An operator retried failed runs. `runs` contains their number by job. */
export const deadLettersRetriedV1 = z.object({
  runs: z
    .array(z.object({ job, runs: z.int().positive() }))
    .min(1)
    .max(200),
})

/**
 * A rebuild has ended. `rebuild_id` is the id of the event that requested it. `differences` lists the first amounts that
 * were wrong in the replaced rows.
 */
export const rebuildEndedV1 = z.object({
  rebuild_id: uuid,
  projections: z.array(projection).min(1),
  result: z.enum(['switched', 'cancelled', 'failed', 'declined']),
  events: z.int().nonnegative(),
  elapsed_ms: z.int().nonnegative(),
  differences: z.int().nonnegative(),
  named: z
    .array(
      z.object({
        projection,
        organization_id: organizationId,
        figure: z.string().max(40),
        live: z.string().max(40).nullable(),
        rebuilt: z.string().max(40).nullable(),
      }),
    )
    .max(20),
})

/** An operator decided that the projection continues without this event. */
export const parkedEventReleasedV1 = z.object({
  projection,
  position,
  stream: z.string().max(300),
  reason: label,
})

/** An operator made a backup. `position` is the last position of the event log in it. */
export const backupCreatedV1 = z.object({
  backup_id: uuid,
  position,
  bytes: z.int().nonnegative(),
  sha256,
})

/** This installation was restored from a backup, without changes after `position`. `files`: the digests of the newest 32 files. */
export const backupRestoredV1 = z.object({
  backup_id: uuid,
  made_at: z.iso.datetime(),
  position,
  files: z.array(sha256).min(1).max(32),
})
