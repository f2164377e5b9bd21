import type { DomainEvent, EventType } from './catalogue.ts'

/**
 * Whether "audit list" shows an event type. It shows changes and searches for people, because someone is responsible
 * for them. Calls, their automatic consequences and scheduled jobs are not shown. Every type is named, so that a new
 * one cannot be forgotten.
 */
const audited = {
  OrganizationRegistered: true,
  CreditGranted: true,
  CreditExpired: false,
  PriceOverrideSet: true,
  PriceOverrideWithdrawn: true,
  BalanceThresholdSet: true,
  MonthClosed: true,
  KeyUsed: false,
  RateLimitExceeded: false,
  CallsRefused: false,
  LedgerFenced: false,
  CreditCharged: false,
  CreditAdjusted: true,
  // The event announces a grant or an adjustment, which is listed itself.
  ReferenceReserved: false,
  ApiKeyIssued: true,
  ApiKeyRotated: true,
  ApiKeyLimitsChanged: true,
  ApiKeyRevoked: true,
  PriceBookProposed: true,
  PriceBookPublished: true,
  PriceBookWithdrawn: true,
  PriceProposalWithdrawn: true,
  // The plan is listed once, and not for each ledger.
  RerateLedgerPlanned: false,
  RerateProposed: true,
  RerateApproved: true,
  RerateAbandoned: true,
  RerateLedgerApplied: true,
  RerateLedgerLeftOut: true,
  RerateApplied: true,
  ProfileFetched: false,
  ProfileMissed: false,
  ProfileGone: false,
  ProfileErased: true,
  PixelLimitSet: true,
  PixelLimitRemoved: true,
  PixelBlocked: true,
  PixelUnblocked: true,
  RebuildRequested: true,
  RebuildEnded: true,
  ParkedEventReleased: true,
  BackupCreated: true,
  BackupRestored: true,
  AppendsResumed: true,
  LedgerFaultAcknowledged: true,
  CallsSearched: true,
  LedgersReconciled: true,
  LogVerified: true,
  OperatorTokenIssued: true,
  OperatorTokenRevoked: true,
  JobRequested: true,
  DeadLettersRetried: true,
  UserCreated: true,
  UserRoleChanged: true,
  UserPasswordChanged: true,
  UserDisabled: true,
  UserEnabled: true,
  UserInvited: true,
  UserInvitationAccepted: true,
  UserInvitationWithdrawn: true,
  UserSignedIn: true,
  UserSignedOut: true,
  SignInsRefused: true,
  SecondFactorSet: true,
  SecondFactorRemoved: true,
  RecoveryCodesRenewed: true,
  RecoveryCodeUsed: true,
  SecondFactorsRefused: true,
  // This event always comes with the first key, which is listed itself.
  InstallationCreated: false,
  InstallationKeyWrapped: true,
  SigningKeyAnnounced: true,
  LogTreeBegun: true,
  LogCheckpointed: false,
  DataImported: true,
  WebhookCreated: true,
  WebhookDeleted: true,
  WebhookPaused: true,
  WebhookResumed: true,
  WebhookSecretRotated: true,
} as const satisfies Readonly<Record<EventType, boolean>>

/** The types for which at least some events are listed. */
export type AuditedType = { [T in EventType]: (typeof audited)[T] extends true ? T : never }[EventType]
export type AuditedEvent = Extract<DomainEvent, { type: AuditedType }>

const isAuditedType = (type: string): type is AuditedType =>
  Object.hasOwn(audited, type) && (audited as Readonly<Record<string, boolean>>)[type] === true

export const auditedTypes: readonly string[] = Object.keys(audited).filter(isAuditedType).sort()

/** Whether this event is a change that a person made. */
export const isAudited = (event: DomainEvent): event is AuditedEvent => {
  if (!isAuditedType(event.type)) return false
  // A reversal is automatic, and a re-rate is listed by ledger.
  if (event.type === 'CreditAdjusted') return event.data.kind !== 'reversal' && event.data.kind !== 'rerate'
  // An erasure with the reason `retention` happens automatically after 30 days.
  return event.type !== 'ProfileErased' || event.data.reason !== 'retention'
}
