import type { DomainEvent, EventType } from './catalogue.ts'

/**
 * Whether "audit list" shows an event type. The list shows what people did: changes, and searches for a person. It does
 * not show calls, their automatic consequences, or scheduled jobs. Every type must be here, so that none is forgotten.
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
  // The grant or adjustment that follows is listed.
  ReferenceReserved: false,
  ApiKeyIssued: true,
  ApiKeyRotated: true,
  ApiKeyLimitsChanged: true,
  ApiKeyRevoked: true,
  PriceBookProposed: true,
  PriceBookPublished: true,
  PriceBookWithdrawn: true,
  PriceProposalWithdrawn: true,
  // The whole plan is listed once, instead of once for each ledger.
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
  // The first installation key, which always follows, is listed.
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

/** The event types of which some or all events are listed. */
export type AuditedType = { [T in EventType]: (typeof audited)[T] extends true ? T : never }[EventType]
export type AuditedEvent = Extract<DomainEvent, { type: AuditedType }>

const isAuditedType = (type: string): type is AuditedType =>
  Object.hasOwn(audited, type) && (audited as Readonly<Record<string, boolean>>)[type] === true

export const auditedTypes: readonly string[] = Object.keys(audited).filter(isAuditedType).sort()

/** Whether this event is a change that a person made. */
export const isAudited = (event: DomainEvent): event is AuditedEvent => {
  if (!isAuditedType(event.type)) return false
  // A reversal is automatic, and the adjustment of a re-rate is listed as `RerateLedgerApplied`.
  if (event.type === 'CreditAdjusted') return event.data.kind !== 'reversal' && event.data.kind !== 'rerate'
  // An erasure with the reason `retention` is automatic, after 30 days.
  return event.type !== 'ProfileErased' || event.data.reason !== 'retention'
}
