import { createHmac } from 'node:crypto'

/** Standard Webhooks (https://www.standardwebhooks.com) let a receiver check that a message is ours, complete and recent. Pure. */

const secretPrefix = 'whsec_'
/** Standard Webhooks requires 24 to 64 bytes. */
export const secretBytes = 32

/** Returns a secret in the form that receivers use. */
export const secretText = (bytes: Buffer): string => `${secretPrefix}${bytes.toString('base64')}`

export type Message = {
  /** The id stays the same in every attempt, so that a receiver recognizes repetitions. */
  readonly id: string
  readonly atMs: number
  readonly body: string
}

/**
 * Signs with each secret, because receivers may still use the previous secret for a while. A receiver accepts a message if one signature matches.
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
