import { creditsText } from '../../billing/money.ts'
import type { AuditedEvent, AuditedType } from '../../events/audited.ts'
import type { DomainEventOf } from '../../events/catalogue.ts'

/** The sentence for each event in the audit. The time and the actor are shown next to the sentence. */

type Sentences = { readonly [T in AuditedType]: (data: DomainEventOf<T>['data']) => string }

const listed = (names: readonly string[], max = 5): string =>
  names.length <= max ? names.join(', ') : `${names.slice(0, max).join(', ')} and ${names.length - max} more`
const because = (reason: string | null): string => (reason === null ? '' : `: ${reason}`)
const until = (instant: string | null): string => (instant === null ? '' : `, until ${instant}`)
const count = (n: number, one: string, many = `${one}s`): string => `${n} ${n === 1 ? one : many}`
const byWay = (way: string): string => (way === 'password' ? '' : ` with the ${way.replaceAll('_', ' ')}`)
const asRole = (role: string, organization: string | null): string =>
  organization === null ? role : `${role} of ${organization}`

const ledgers = {
  OrganizationRegistered: ({ organization_id, name, overdraft_limit }) =>
    `created the organization ${organization_id} "${name}"${overdraft_limit === '0' ? '' : ` with an overdraft limit of ${creditsText(overdraft_limit)}`}`,
  CreditGranted: ({ amount, expires_at, reason, reference }) =>
    `granted ${creditsText(amount)}${until(expires_at)}${because(reason)}${reference === null ? '' : ` (${reference})`}`,
  PriceOverrideSet: ({ sku, amount, effective_from, reason }) =>
    `set the organization's own price of ${sku} to ${amount ?? 'that of the price book'}, from ${effective_from}${because(reason)}`,
  PriceOverrideWithdrawn: ({ sku, reason }) =>
    `withdrew the organization's own price of ${sku}${because(reason)}`,
  BalanceThresholdSet: ({ amount }) =>
    amount === null
      ? 'turned off the warning about a low balance'
      : `set a warning for a balance below ${creditsText(amount)}`,
  MonthClosed: ({ month, totals }) => `closed ${month} at a balance of ${creditsText(totals.closing)}`,
  CreditAdjusted: ({ kind, amount, reason, reference }) =>
    `${kind === 'refund' ? 'refunded' : kind === 'void' ? 'took back' : 'adjusted by'} ${creditsText(kind === 'void' ? amount.replace(/^-/, '') : amount)}${because(reason)}${reference === null ? '' : ` (${reference})`}`,
  LedgerFaultAcknowledged: ({ revision, reason }) =>
    `acknowledged a fault at revision ${revision}${because(reason)}`,
  CallsSearched: ({ organization_id, from, to }) =>
    `searched the calls of ${organization_id} from ${from} to ${to} for an e-mail address, IP address or profile`,
  LedgersReconciled: ({ ledgers: of, ledger_count = of.length, calls, differences }) =>
    `reconciled ${count(ledger_count, 'ledger')} that contain ${count(calls, 'call')}: ${count(differences, 'difference')}`,
} as const satisfies Partial<Sentences>

const keys = {
  ApiKeyIssued: ({ key_id, name, permissions }) =>
    `issued the key ${key_id} "${name}" for ${listed(permissions, 10) || 'nothing'}`,
  ApiKeyRotated: ({ key_id, successor_id, grace_until }) =>
    `replaced the key ${key_id} with ${successor_id}; the old one works until ${grace_until}`,
  ApiKeyLimitsChanged: ({ key_id, limits }) =>
    `limited the key ${key_id} to ${limits.requests_per_minute} requests per minute, ${limits.requests_per_day} per day, ${limits.email_validations_per_second} e-mail validations per second`,
  ApiKeyRevoked: ({ key_id, reason }) => `revoked the key ${key_id}${because(reason)}`,
  PixelLimitSet: ({ domain, period, number }) => `limited the pixel on ${domain} to ${number} per ${period}`,
  PixelLimitRemoved: ({ domain, period }) => `removed the pixel's limit per ${period} on ${domain}`,
  PixelBlocked: ({ domain }) => `blocked the pixel on ${domain}`,
  PixelUnblocked: ({ domain }) => `unblocked the pixel on ${domain}`,
  ProfileErased: ({ subject_id, reason, note }) =>
    `erased the person ${subject_id} (${reason})${because(note)}`,
  WebhookCreated: ({ webhook_id, host, events }) =>
    `created the webhook ${webhook_id} to ${host} for ${listed(events)}`,
  WebhookDeleted: ({ webhook_id, host }) => `deleted the webhook ${webhook_id} to ${host}`,
  WebhookPaused: ({ webhook_id, host }) => `paused the webhook ${webhook_id} to ${host}`,
  WebhookResumed: ({ webhook_id, host }) => `resumed the webhook ${webhook_id} to ${host}`,
  WebhookSecretRotated: ({ webhook_id, host, former_until }) =>
    `gave the webhook ${webhook_id} to ${host} a new secret; the old secret also signs until ${former_until}`,
} as const satisfies Partial<Sentences>

const prices = {
  PriceBookProposed: ({ proposal, effective_from, rules, reason }) =>
    `proposed the price book p${proposal} with ${count(rules.length, 'rule')}, from ${effective_from}${because(reason)}`,
  PriceBookPublished: ({ version, effective_from, proposal }) =>
    `published the price book ${version}${proposal === null ? '' : `, as proposed in p${proposal}`}, from ${effective_from}`,
  PriceBookWithdrawn: ({ version, reason }) => `withdrew the price book ${version}${because(reason)}`,
  PriceProposalWithdrawn: ({ proposal, reason }) => `withdrew the proposal p${proposal}${because(reason)}`,
  RerateProposed: ({ run, from, to, calls, given, taken, reason }) =>
    `proposed the re-rate ${run} of ${count(calls, 'call')} from ${from} to ${to}: ${creditsText(given)} given, ${taken} taken${because(reason)}`,
  RerateApproved: ({ run }) => `approved the re-rate ${run}`,
  RerateAbandoned: ({ run, reason }) => `abandoned the re-rate ${run}${because(reason)}`,
  RerateLedgerApplied: ({ run, organization_id, amount }) =>
    `adjusted ${organization_id} by ${creditsText(amount)} for the re-rate ${run}`,
  RerateLedgerLeftOut: ({ run, organization_id, reason }) =>
    `left ${organization_id} out of the re-rate ${run}${because(reason)}`,
  RerateApplied: ({ run, applied, left_out, amount }) =>
    `ended the re-rate ${run}: ${count(applied, 'ledger')} adjusted by ${creditsText(amount)}, ${left_out} left out`,
} as const satisfies Partial<Sentences>

const installation = {
  DataImported: ({ data, source, imported, as_of }) =>
    `imported ${count(imported, 'record')} of ${data === 'profiles' ? 'people' : data}${source === null ? '' : ` from "${source}"`}${as_of === null ? '' : `, as of ${as_of}`}`,
  RebuildRequested: ({ projections, reason }) => `began to rebuild ${listed(projections)}${because(reason)}`,
  RebuildEnded: ({ projections, result, events, differences }) =>
    `rebuilt ${listed(projections)} from ${count(events, 'event')}: ${result}${differences === 0 ? '' : `, with ${count(differences, 'difference')} in money`}`,
  ParkedEventReleased: ({ projection, position, reason }) =>
    `let ${projection} skip the event at position ${position}${because(reason)}`,
  BackupCreated: ({ backup_id, position, bytes }) =>
    `created the backup ${backup_id} up to position ${position} (${bytes} bytes)`,
  BackupRestored: ({ backup_id, made_at, position }) =>
    `restored the backup ${backup_id} of ${made_at}, up to position ${position}`,
  AppendsResumed: ({ failing_since }) =>
    `appended to the event log again, after failures since ${failing_since}`,
  JobRequested: ({ job }) => `requested a run of the job ${job}`,
  DeadLettersRetried: ({ runs }) =>
    `retried failed runs of ${listed(runs.map(({ job, runs: times }) => (times === 1 ? job : `${job} (${times})`)))}`,
  SigningKeyAnnounced: ({ key_id, reason }) =>
    `began to sign checkpoints with the key ${key_id}${because(reason)}`,
  LogTreeBegun: ({ origin }) => `began the tree of checkpoints of ${origin}`,
  LogVerified: () => 'verified the event log',
} as const satisfies Partial<Sentences>

const people = {
  OperatorTokenIssued: ({ token_id, user }) => `created the token ${token_id} for ${user}`,
  InstallationKeyWrapped: ({ slots }) =>
    `wrapped the installation key under SECRET_KEY ${listed(slots.map(({ secret_key }) => secret_key))}`,
  OperatorTokenRevoked: ({ token_id, user }) => `revoked the token ${token_id} of ${user}`,
  UserCreated: ({ user, role, organization_id }) =>
    `created the user ${user} as ${asRole(role, organization_id)}`,
  UserRoleChanged: ({ user, role, organization_id }) => `made ${user} ${asRole(role, organization_id)}`,
  UserPasswordChanged: ({ user }) => `gave ${user} a new password`,
  UserDisabled: ({ user, reason }) => `disabled ${user}${because(reason)}`,
  UserEnabled: ({ user, reason }) => `enabled ${user}${because(reason)}`,
  UserInvited: ({ user, role, organization_id, expires_at }) =>
    `invited ${user} as ${asRole(role, organization_id)}${until(expires_at)}`,
  UserInvitationAccepted: () => 'accepted the invitation and chose a password',
  UserInvitationWithdrawn: ({ user }) => `withdrew the invitation of ${user}`,
  UserSignedIn: ({ known_device, way }) =>
    `signed in to the dashboard${byWay(way)}${known_device ? '' : ' on a new device'}`,
  UserSignedOut: () => 'signed out of the dashboard',
  SignInsRefused: ({ user, reason, count: times, way }) =>
    `refused ${count(times, 'sign-in')}${user === null ? ' of an unknown user' : ` of ${user}`}${byWay(way)}: ${refusals[reason]}`,
  SecondFactorSet: ({ user }) => `set a second factor for ${user}`,
  SecondFactorRemoved: ({ user, reason }) => `removed the second factor of ${user}${because(reason)}`,
  RecoveryCodesRenewed: ({ user }) => `created new recovery codes for ${user}`,
  RecoveryCodeUsed: ({ user, code }) => `used the recovery code ${code} of ${user}`,
  SecondFactorsRefused: ({ user, reason, count: times }) =>
    `refused ${count(times, 'code')} of the second factor of ${user}: ${factorRefusals[reason]}`,
} as const satisfies Partial<Sentences>

const refusals = {
  wrong: 'the name or the password was wrong',
  disabled: 'the user is disabled',
  limited: 'there were too many',
} as const

const factorRefusals = {
  wrong: 'the code was wrong',
  used: 'the code had already been used',
  limited: 'there were too many',
  broken: 'it could not be checked',
} as const

const sentences: Sentences = { ...ledgers, ...keys, ...prices, ...installation, ...people }

export const auditSentence = ({ type, data }: AuditedEvent): string =>
  // TypeScript cannot infer that the sentence for a type accepts the data of that type.
  (sentences[type] as (data: AuditedEvent['data']) => string)(data)
