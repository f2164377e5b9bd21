import { z } from 'zod'
import { labelMax } from './text.ts'

/** The types from which events are built: strings, integers, booleans and null. An event never contains a domain object or a float. */

/** A non-negative credit amount as a canonical decimal string: at most 6 fractional digits, no sign, no trailing zero. */
export const creditAmount = z.string().regex(/^(0|[1-9]\d{0,17})(\.\d{0,5}[1-9])?$/)

/** Like `creditAmount`, but possibly negative, as in an adjustment. "-0" is not canonical, so it is refused. */
export const signedCreditAmount = z.string().regex(/^(?!-0$)-?(0|[1-9]\d{0,17})(\.\d{0,5}[1-9])?$/)

const instantForm = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

/** An instant in UTC with milliseconds, as `Date.prototype.toISOString` writes it. */
export const instant = z.string().regex(instantForm)

const existing = /^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z$/

/** Whether the value is an `instant` that can be compared. The pattern of `instant` also accepts the 99th of a month. */
export const isInstant = (value: unknown): boolean => typeof value === 'string' && existing.test(value)

/** A UUID in lower case. Event, charge and grant ids are deterministic UUIDv5s. */
export const uuid = z.string().regex(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/)

/** The trace-id of W3C Trace Context. A trace-id of zeros means that there is no trace, so it is not recorded. */
export const traceId = z.string().regex(/^[0-9a-f]{32}$/)

/**
 * `org_` and a ULID, or `org_test_` and the same ULID for the organization's test organization
 * (`test-organization.ts`). It contains no hyphen, because a hyphen separates a stream's category from its id.
 */
export const organizationId = z.string().regex(/^org_(test_)?[0-9A-HJKMNP-TV-Z]{26}$/)

/** `sub_` and a ULID: the id of a person, which is meaningless outside this installation. It contains no hyphen. */
export const subjectId = z.string().regex(/^sub_[0-9A-HJKMNP-TV-Z]{26}$/)

/** The public part of a secret that people copy: 16 base62 characters. */
export const publicId = z.string().regex(/^[0-9A-Za-z]{16}$/)

/** The public part of an API key. */
export const keyId = publicId

/** The id of a SECRET_KEY (`src/guard/secrets/installation-key.ts`). */
export const secretKeyId = z.string().regex(/^[0-9a-f]{12}$/)

/** A keyed HMAC-SHA-256 in base64url. Events contain it instead of an address. */
export const keyedHmac = z.string().regex(/^[A-Za-z0-9_-]{43}$/)

/** Short text from an operator. New text must also pass the stricter check in `text.ts`. */
export const label = z.string().min(1).max(labelMax)
