import type { z } from 'zod'
import { callsRefusedV1, keyUsedV1, ledgerFencedV1, rateLimitExceededV1 } from './calls.ts'
import { logCheckpointedV1, logTreeBegunV1, signingKeyAnnouncedV1 } from './checkpoints.ts'
import {
  balanceThresholdSetV1,
  creditAdjustedV1,
  creditChargedV1,
  creditExpiredV1,
  creditGrantedV1,
  monthClosedV1,
  organizationRegisteredV1,
  priceOverrideSetV1,
  priceOverrideWithdrawnV1,
  referenceReservedV1,
} from './credits.ts'
import { dataImportedV1 } from './data.ts'
import { installationCreatedV1, installationKeyWrappedV1 } from './installation.ts'
import { apiKeyIssuedV1, apiKeyLimitsChangedV1, apiKeyRevokedV1, apiKeyRotatedV1 } from './keys.ts'
import {
  appendsResumedV1,
  backupCreatedV1,
  backupRestoredV1,
  callsSearchedV1,
  deadLettersRetriedV1,
  jobRequestedV1,
  ledgerFaultAcknowledgedV1,
  ledgersReconciledV1,
  ledgersReconciledV2,
  logVerifiedV1,
  operatorTokenIssuedV1,
  operatorTokenRevokedV1,
  parkedEventReleasedV1,
  rebuildEndedV1,
  rebuildRequestedV1,
} from './operator.ts'
import { pixelBlockedV1, pixelLimitRemovedV1, pixelLimitSetV1, pixelUnblockedV1 } from './pixel.ts'
import {
  priceBookProposedV1,
  priceBookPublishedV1,
  priceBookWithdrawnV1,
  priceProposalWithdrawnV1,
} from './prices.ts'
import { profileErasedV1, profileFetchedV1, profileGoneV1, profileMissedV1 } from './profile.ts'
import {
  rerateAbandonedV1,
  rerateAppliedV1,
  rerateApprovedV1,
  rerateLedgerAppliedV1,
  rerateLedgerLeftOutV1,
  rerateLedgerPlannedV1,
  rerateProposedV1,
} from './rerates.ts'
import {
  recoveryCodesRenewedV1,
  recoveryCodeUsedV1,
  secondFactorRemovedV1,
  secondFactorSetV1,
  secondFactorsRefusedV1,
} from './second-factors.ts'
import { signInsRefusedV1, userSignedInV1, userSignedOutV1 } from './sign-ins.ts'
import {
  userCreatedV1,
  userDisabledV1,
  userEnabledV1,
  userInvitationAcceptedV1,
  userInvitationWithdrawnV1,
  userInvitedV1,
  userPasswordChangedV1,
  userRoleChangedV1,
} from './users.ts'
import {
  webhookCreatedV1,
  webhookDeletedV1,
  webhookPausedV1,
  webhookResumedV1,
  webhookSecretRotatedV1,
} from './webhooks.ts'

/**
 * Every event type with all its released versions, oldest first. The last version is the current one. Never edit a
 * released schema: add the next version here, an upcast in `upcast.ts`, and a sample in `test/events/samples`.
 */
export const catalogue = {
  OrganizationRegistered: [organizationRegisteredV1],
  CreditGranted: [creditGrantedV1],
  CreditExpired: [creditExpiredV1],
  PriceOverrideSet: [priceOverrideSetV1],
  PriceOverrideWithdrawn: [priceOverrideWithdrawnV1],
  BalanceThresholdSet: [balanceThresholdSetV1],
  MonthClosed: [monthClosedV1],
  KeyUsed: [keyUsedV1],
  RateLimitExceeded: [rateLimitExceededV1],
  CallsRefused: [callsRefusedV1],
  LedgerFenced: [ledgerFencedV1],
  CreditCharged: [creditChargedV1],
  CreditAdjusted: [creditAdjustedV1],
  ReferenceReserved: [referenceReservedV1],
  ApiKeyIssued: [apiKeyIssuedV1],
  ApiKeyRotated: [apiKeyRotatedV1],
  ApiKeyLimitsChanged: [apiKeyLimitsChangedV1],
  ApiKeyRevoked: [apiKeyRevokedV1],
  PriceBookProposed: [priceBookProposedV1],
  PriceBookPublished: [priceBookPublishedV1],
  PriceBookWithdrawn: [priceBookWithdrawnV1],
  PriceProposalWithdrawn: [priceProposalWithdrawnV1],
  RerateLedgerPlanned: [rerateLedgerPlannedV1],
  RerateProposed: [rerateProposedV1],
  RerateApproved: [rerateApprovedV1],
  RerateAbandoned: [rerateAbandonedV1],
  RerateLedgerApplied: [rerateLedgerAppliedV1],
  RerateLedgerLeftOut: [rerateLedgerLeftOutV1],
  RerateApplied: [rerateAppliedV1],
  ProfileFetched: [profileFetchedV1],
  ProfileMissed: [profileMissedV1],
  ProfileGone: [profileGoneV1],
  ProfileErased: [profileErasedV1],
  PixelLimitSet: [pixelLimitSetV1],
  PixelLimitRemoved: [pixelLimitRemovedV1],
  PixelBlocked: [pixelBlockedV1],
  PixelUnblocked: [pixelUnblockedV1],
  RebuildRequested: [rebuildRequestedV1],
  RebuildEnded: [rebuildEndedV1],
  ParkedEventReleased: [parkedEventReleasedV1],
  BackupCreated: [backupCreatedV1],
  BackupRestored: [backupRestoredV1],
  AppendsResumed: [appendsResumedV1],
  LedgerFaultAcknowledged: [ledgerFaultAcknowledgedV1],
  CallsSearched: [callsSearchedV1],
  LedgersReconciled: [ledgersReconciledV1, ledgersReconciledV2],
  LogVerified: [logVerifiedV1],
  OperatorTokenIssued: [operatorTokenIssuedV1],
  OperatorTokenRevoked: [operatorTokenRevokedV1],
  JobRequested: [jobRequestedV1],
  DeadLettersRetried: [deadLettersRetriedV1],
  UserCreated: [userCreatedV1],
  UserRoleChanged: [userRoleChangedV1],
  UserPasswordChanged: [userPasswordChangedV1],
  UserDisabled: [userDisabledV1],
  UserEnabled: [userEnabledV1],
  UserInvited: [userInvitedV1],
  UserInvitationAccepted: [userInvitationAcceptedV1],
  UserInvitationWithdrawn: [userInvitationWithdrawnV1],
  UserSignedIn: [userSignedInV1],
  UserSignedOut: [userSignedOutV1],
  SignInsRefused: [signInsRefusedV1],
  SecondFactorSet: [secondFactorSetV1],
  SecondFactorRemoved: [secondFactorRemovedV1],
  RecoveryCodesRenewed: [recoveryCodesRenewedV1],
  RecoveryCodeUsed: [recoveryCodeUsedV1],
  SecondFactorsRefused: [secondFactorsRefusedV1],
  InstallationCreated: [installationCreatedV1],
  InstallationKeyWrapped: [installationKeyWrappedV1],
  SigningKeyAnnounced: [signingKeyAnnouncedV1],
  LogTreeBegun: [logTreeBegunV1],
  LogCheckpointed: [logCheckpointedV1],
  DataImported: [dataImportedV1],
  WebhookCreated: [webhookCreatedV1],
  WebhookDeleted: [webhookDeletedV1],
  WebhookPaused: [webhookPausedV1],
  WebhookResumed: [webhookResumedV1],
  WebhookSecretRotated: [webhookSecretRotatedV1],
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
