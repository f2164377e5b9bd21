import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { OddManner } from './odd-peer.ts'

const child = fileURLToPath(new URL('odd-peer-child.ts', import.meta.url))

export type OddChild = {
  /** Resolves when it is the owner of every organization, as far as it knows. */
  join(manner: OddManner): Promise<void>
  leave(): Promise<void>
  /** How many questions it was asked since it joined. */
  asked(): Promise<number>
  close(): Promise<void>
}

type Told = { readonly asked: number } | { readonly error: string }

/** A process of the same installation that answers its peers in odd manners (`odd-peer.ts`). */
export const startOddPeer = async (environment: Readonly<Record<string, string>>): Promise<OddChild> => {
  const started = fork(child, { env: { ...process.env, ...environment }, stdio: 'inherit' })
  const heard = async (): Promise<number> => {
    const waiting = new AbortController()
    const { signal } = waiting
    const [told] = (await Promise.race([
      once(started, 'message', { signal }),
      once(started, 'exit', { signal }).then(
        ([code]) => [{ error: `it ended with ${code}` }],
        () => [{ error: 'not waited for' }],
      ),
    ])) as [Told]
    waiting.abort()
    if ('error' in told) throw new Error(`odd peer: ${told.error}`)
    return told.asked
  }
  const order = (what: object): Promise<number> => {
    const answer = heard()
    started.send(what)
    return answer
  }
  await heard()
  return {
    join: async (manner) => void (await order({ join: manner })),
    leave: async () => void (await order({ leave: true })),
    asked: () => order({ asked: true }),
    close: async () => {
      const ended = once(started, 'exit')
      started.disconnect()
      await ended
    },
  }
}
