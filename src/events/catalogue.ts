import type { z } from 'zod'
import { callsRefusedV1, keyUsedV1, rateLimitExceededV1 } from './calls.ts'
import {
  creditAdjustedV1,
  creditChargedV1,
  creditExpiredV1,
  creditGrantedV1,
  organizationRegisteredV1,
  priceOverrideSetV1,
} from './credits.ts'
import { apiKeyIssuedV1, apiKeyLimitsChangedV1, apiKeyRevokedV1, apiKeyRotatedV1 } from './keys.ts'
import { appendsResumedV1, ledgerFaultAcknowledgedV1, rebuildRequestedV1 } from './operator.ts'
import { pixelBlockedV1, pixelLimitRemovedV1, pixelLimitSetV1, pixelUnblockedV1 } from './pixel.ts'
import { priceBookPublishedV1 } from './prices.ts'
import { profileErasedV1, profileFetchedV1, profileGoneV1, profileMissedV1 } from './profile.ts'

/**
 * Every event type with every version ever released, oldest first; the last is what is written today. A released
 * schema is never edited: add the next version here, an upcast in `upcast.ts` and a sample under
 * `test/events/samples`.
 */
export const catalogue = {
  OrganizationRegistered: [organizationRegisteredV1],
  CreditGranted: [creditGrantedV1],
  CreditExpired: [creditExpiredV1],
  PriceOverrideSet: [priceOverrideSetV1],
  KeyUsed: [keyUsedV1],
  RateLimitExceeded: [rateLimitExceededV1],
  CallsRefused: [callsRefusedV1],
  CreditCharged: [creditChargedV1],
  CreditAdjusted: [creditAdjustedV1],
  ApiKeyIssued: [apiKeyIssuedV1],
  ApiKeyRotated: [apiKeyRotatedV1],
  ApiKeyLimitsChanged: [apiKeyLimitsChangedV1],
  ApiKeyRevoked: [apiKeyRevokedV1],
  PriceBookPublished: [priceBookPublishedV1],
  ProfileFetched: [profileFetchedV1],
  ProfileMissed: [profileMissedV1],
  ProfileGone: [profileGoneV1],
  ProfileErased: [profileErasedV1],
  PixelLimitSet: [pixelLimitSetV1],
  PixelLimitRemoved: [pixelLimitRemovedV1],
  PixelBlocked: [pixelBlockedV1],
  PixelUnblocked: [pixelUnblockedV1],
  RebuildRequested: [rebuildRequestedV1],
  AppendsResumed: [appendsResumedV1],
  LedgerFaultAcknowledged: [ledgerFaultAcknowledgedV1],
} as const satisfies Record<string, readonly [z.ZodType, ...z.ZodType[]]>

export type EventType = keyof typeof catalogue

type Last<T extends readonly unknown[]> = T extends readonly [...unknown[], infer L] ? L : never
type DataOf<T extends EventType> = z.infer<Last<(typeof catalogue)[T]>>

/** A fact in today's vocabulary: what deciders return and folds receive. */
export type DomainEvent = { [T in EventType]: { type: T; data: DataOf<T> } }[EventType]
export type DomainEventOf<T extends EventType> = Extract<DomainEvent, { type: T }>

/** The events of an organization's ledger. */
export type LedgerEvent = DomainEventOf<
  | 'OrganizationRegistered'
  | 'CreditGranted'
  | 'CreditExpired'
  | 'PriceOverrideSet'
  | 'KeyUsed'
  | 'RateLimitExceeded'
  | 'CallsRefused'
  | 'CreditCharged'
  | 'CreditAdjusted'
>

export const isEventType = (type: string): type is EventType => Object.hasOwn(catalogue, type)

/** The version in which events of this type are written today, counted from 1. */
export const currentVersion = (type: EventType): number => catalogue[type].length

/** Checks data against the released schema of that version. Throws a ZodError naming the offending member. */
export const checkEventData = (type: EventType, version: number, data: unknown): unknown => {
  const schema = catalogue[type][version - 1]
  if (schema === undefined)
    throw new Error(`${type} has no version ${version}; the newest known here is ${currentVersion(type)}`)
  return schema.parse(data)
}
