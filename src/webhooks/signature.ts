import { createHmac } from 'node:crypto'

/** Signs messages as in Standard Webhooks (https://www.standardwebhooks.com), so that a receiver can check their origin, content and age. Pure. */

const secretPrefix = 'whsec_'
/** Standard Webhooks requires 24 to 64 bytes. */
export const secretBytes = 32

/** Returns a secret in the text form of Standard Webhooks. */
export const secretText = (bytes: Buffer): string => `${secretPrefix}${bytes.toString('base64')}`

export type Message = {
  /** The id is the same in every attempt, so that receivers can recognize a repeated message. */
  readonly id: string
  readonly atMs: number
  readonly body: string
}

/**
 * Signs with each secret, because a receiver can still use the previous one for a while. A receiver accepts a message if one signature matches.
 */
export const signedHeaders = (
  secrets: string | readonly string[],
  { id, atMs, body }: Message,
): Readonly<Record<'webhook-id' | 'webhook-timestamp' | 'webhook-signature', string>> => {
  const timestamp = String(Math.floor(atMs / 1_000))
  const signatures = [secrets].flat().map((secret) => {
    const key = Buffer.from(secret.slice(secretPrefix.length), 'base64')
    return `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')}`
  })
  return { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signatures.join(' ') }
}
