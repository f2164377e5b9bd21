import type { z } from 'zod'
import * as calls from './calls.ts'
import * as checkpoints from './checkpoints.ts'
import * as credits from './credits.ts'
import * as data from './data.ts'
import * as installation from './installation.ts'
import * as keys from './keys.ts'
import * as operator from './operator.ts'
import * as pixel from './pixel.ts'
import * as prices from './prices.ts'
import * as profile from './profile.ts'
import * as rerates from './rerates.ts'
import * as secondFactors from './second-factors.ts'
import * as signIns from './sign-ins.ts'
import * as users from './users.ts'
import * as webhooks from './webhooks.ts'

/**
 * Every event type with all its released versions, oldest first. The last version is the current one. Never edit a
 * released schema: add the next version here, an upcast in `upcast.ts`, and a sample in `test/events/samples`.
 */
export const catalogue = {
  OrganizationRegistered: [credits.organizationRegisteredV1],
  CreditGranted: [credits.creditGrantedV1],
  CreditExpired: [credits.creditExpiredV1],
  PriceOverrideSet: [credits.priceOverrideSetV1],
  PriceOverrideWithdrawn: [credits.priceOverrideWithdrawnV1],
  BalanceThresholdSet: [credits.balanceThresholdSetV1],
  MonthClosed: [credits.monthClosedV1],
  KeyUsed: [calls.keyUsedV1],
  RateLimitExceeded: [calls.rateLimitExceededV1],
  CallsRefused: [calls.callsRefusedV1],
  LedgerFenced: [calls.ledgerFencedV1],
  CreditCharged: [credits.creditChargedV1],
  CreditAdjusted: [credits.creditAdjustedV1],
  ReferenceReserved: [credits.referenceReservedV1],
  ApiKeyIssued: [keys.apiKeyIssuedV1],
  ApiKeyRotated: [keys.apiKeyRotatedV1],
  ApiKeyLimitsChanged: [keys.apiKeyLimitsChangedV1],
  ApiKeyRevoked: [keys.apiKeyRevokedV1],
  PriceBookProposed: [prices.priceBookProposedV1],
  PriceBookPublished: [prices.priceBookPublishedV1],
  PriceBookWithdrawn: [prices.priceBookWithdrawnV1],
  PriceProposalWithdrawn: [prices.priceProposalWithdrawnV1],
  RerateLedgerPlanned: [rerates.rerateLedgerPlannedV1],
  RerateProposed: [rerates.rerateProposedV1],
  RerateApproved: [rerates.rerateApprovedV1],
  RerateAbandoned: [rerates.rerateAbandonedV1],
  RerateLedgerApplied: [rerates.rerateLedgerAppliedV1],
  RerateLedgerLeftOut: [rerates.rerateLedgerLeftOutV1],
  RerateApplied: [rerates.rerateAppliedV1],
  ProfileFetched: [profile.profileFetchedV1],
  ProfileMissed: [profile.profileMissedV1],
  ProfileGone: [profile.profileGoneV1],
  ProfileErased: [profile.profileErasedV1],
  PixelLimitSet: [pixel.pixelLimitSetV1],
  PixelLimitRemoved: [pixel.pixelLimitRemovedV1],
  PixelBlocked: [pixel.pixelBlockedV1],
  PixelUnblocked: [pixel.pixelUnblockedV1],
  RebuildRequested: [operator.rebuildRequestedV1],
  RebuildEnded: [operator.rebuildEndedV1],
  ParkedEventReleased: [operator.parkedEventReleasedV1],
  BackupCreated: [operator.backupCreatedV1],
  BackupRestored: [operator.backupRestoredV1],
  AppendsResumed: [operator.appendsResumedV1],
  LedgerFaultAcknowledged: [operator.ledgerFaultAcknowledgedV1],
  CallsSearched: [operator.callsSearchedV1],
  LedgersReconciled: [operator.ledgersReconciledV1, operator.ledgersReconciledV2],
  LogVerified: [operator.logVerifiedV1],
  OperatorTokenIssued: [operator.operatorTokenIssuedV1],
  OperatorTokenRevoked: [operator.operatorTokenRevokedV1],
  JobRequested: [operator.jobRequestedV1],
  DeadLettersRetried: [operator.deadLettersRetriedV1],
  UserCreated: [users.userCreatedV1],
  UserRoleChanged: [users.userRoleChangedV1],
  UserPasswordChanged: [users.userPasswordChangedV1],
  UserDisabled: [users.userDisabledV1],
  UserEnabled: [users.userEnabledV1],
  UserInvited: [users.userInvitedV1],
  UserInvitationAccepted: [users.userInvitationAcceptedV1],
  UserInvitationWithdrawn: [users.userInvitationWithdrawnV1],
  UserSignedIn: [signIns.userSignedInV1],
  UserSignedOut: [signIns.userSignedOutV1],
  SignInsRefused: [signIns.signInsRefusedV1],
  SecondFactorSet: [secondFactors.secondFactorSetV1],
  SecondFactorRemoved: [secondFactors.secondFactorRemovedV1],
  RecoveryCodesRenewed: [secondFactors.recoveryCodesRenewedV1],
  RecoveryCodeUsed: [secondFactors.recoveryCodeUsedV1],
  SecondFactorsRefused: [secondFactors.secondFactorsRefusedV1],
  InstallationCreated: [installation.installationCreatedV1],
  InstallationKeyWrapped: [installation.installationKeyWrappedV1],
  SigningKeyAnnounced: [checkpoints.signingKeyAnnouncedV1],
  LogTreeBegun: [checkpoints.logTreeBegunV1],
  LogCheckpointed: [checkpoints.logCheckpointedV1],
  DataImported: [data.dataImportedV1],
  WebhookCreated: [webhooks.webhookCreatedV1],
  WebhookDeleted: [webhooks.webhookDeletedV1],
  WebhookPaused: [webhooks.webhookPausedV1],
  WebhookResumed: [webhooks.webhookResumedV1],
  WebhookSecretRotated: [webhooks.webhookSecretRotatedV1],
} as const satisfies Record<string, readonly [z.ZodType, ...z.ZodType[]]>

export type EventType = keyof typeof catalogue

type Last<T extends readonly unknown[]> = T extends readonly [...unknown[], infer L] ? L : never
type DataOf<T extends EventType> = z.infer<Last<(typeof catalogue)[T]>>

/** An event in its current version, which deciders return and folds receive. */
export type DomainEvent = { [T in EventType]: { type: T; data: DataOf<T> } }[EventType]
export type DomainEventOf<T extends EventType> = Extract<DomainEvent, { type: T }>

export type LedgerEvent = DomainEventOf<
  | 'OrganizationRegistered'
  | 'CreditGranted'
  | 'CreditExpired'
  | 'PriceOverrideSet'
  | 'PriceOverrideWithdrawn'
  | 'BalanceThresholdSet'
  | 'MonthClosed'
  | 'KeyUsed'
  | 'RateLimitExceeded'
  | 'CallsRefused'
  | 'LedgerFenced'
  | 'CreditCharged'
  | 'CreditAdjusted'
>

export const isEventType = (type: string): type is EventType => Object.hasOwn(catalogue, type)

/** The version in which new events of this type are written, counted from 1. */
export const currentVersion = (type: EventType): number => catalogue[type].length

/** Checks data against the schema of a version. Throws a ZodError that names the invalid member. */
export const checkEventData = (type: EventType, version: number, data: unknown): unknown => {
  const schema = catalogue[type][version - 1]
  if (schema === undefined)
    throw new Error(
      `${type} has no version ${version} in this release; the newest is ${currentVersion(type)}`,
    )
  return schema.parse(data)
}
