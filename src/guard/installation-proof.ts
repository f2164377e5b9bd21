import { createHmac } from 'node:crypto'
import type { RingKey } from './secret-ring.ts'

/**
 * Whether a process belongs to an installation, without saying which it is: who has the SECRET_KEY asks with a text of its own, and only
 * who has it too gives what the key makes of that text.
 */

export const questionHeader = 'x-installation-question'
export const proofHeader = 'x-installation-proof'

/** What `randomUUID` makes. */
const question = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** Null for what is no question. The key of it is for nothing else. */
export const proofOf = (key: RingKey, asked: unknown): string | null =>
  typeof asked === 'string' && question.test(asked)
    ? createHmac('sha256', key.derive('installation proof')).update(asked).digest('base64url')
    : null
