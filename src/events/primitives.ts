import { z } from 'zod'
import { labelMax } from './text.ts'

/**
 * The few primitives events are made of. Events hold strings, integers, booleans and null; never a domain
 * object, never a float.
 */

/** A non-negative credit amount as a canonical decimal string: at most 6 fractional digits, no sign, no trailing zero. */
export const creditAmount = z.string().regex(/^(0|[1-9]\d{0,17})(\.\d{0,5}[1-9])?$/)

/** A credit amount that may be negative: an adjustment. "-0" is not canonical and is refused. */
export const signedCreditAmount = z.string().regex(/^(?!-0$)-?(0|[1-9]\d{0,17})(\.\d{0,5}[1-9])?$/)

/** An instant in UTC with milliseconds, as `Date.prototype.toISOString` writes it. */
export const instant = z.string().regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)

/** A UUID in lower case. Event, charge and grant ids are deterministic UUIDv5s. */
export const uuid = z.string().regex(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/)

/** The trace-id of W3C Trace Context. All zeros means no trace, and is not recorded. */
export const traceId = z.string().regex(/^[0-9a-f]{32}$/)

/**
 * `org_` and a ULID; `org_test_` and the same of an organization's test organization (`test-organization.ts`). Holds no hyphen: the
 * hyphen separates a stream's category from its id.
 */
export const organizationId = z.string().regex(/^org_(test_)?[0-9A-HJKMNP-TV-Z]{26}$/)

/** `sub_` and a ULID: a person, by an id that means nothing outside this installation. Holds no hyphen. */
export const subjectId = z.string().regex(/^sub_[0-9A-HJKMNP-TV-Z]{26}$/)

/** The public half of a secret that people copy: 16 base62 characters. */
export const publicId = z.string().regex(/^[0-9A-Za-z]{16}$/)

/** The public half of an API key. */
export const keyId = publicId

/** The id of a SECRET_KEY (`src/guard/secrets/installation-key.ts`). */
export const secretKeyId = z.string().regex(/^[0-9a-f]{12}$/)

/** A keyed HMAC-SHA-256 in base64url, in the event log instead of an address. */
export const keyedHmac = z.string().regex(/^[A-Za-z0-9_-]{43}$/)

/** Short free text written by an operator. New text has to pass the stricter rule of `text.ts`. */
export const label = z.string().min(1).max(labelMax)
