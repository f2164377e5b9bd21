/**
 * What a web page says about itself in JSON-LD (`<script type="application/ld+json">`), read without trusting it.
 *
 * A page is hostile: markup can be built to keep a parser busy. It is therefore parsed in a thread of its own that is
 * killed when its time is up, one thread per page, so that nothing of one page is left for the next. What comes back is
 * JSON as the page wrote it; its vocabulary is the reader's business.
 */
import { Worker } from 'node:worker_threads'

export type JsonObject = Readonly<Record<string, unknown>>

export type JsonLd =
  /** At least one. Lists and `@graph`s are unrolled; what is nested in a node stays there. */
  | { readonly kind: 'found'; readonly nodes: readonly JsonObject[] }
  /** The page has no JSON-LD. */
  | { readonly kind: 'none' }
  /** Its time was up, or too many pages were being read already. */
  | { readonly kind: 'too_slow' }
  /** It has JSON-LD, none of which is JSON within the limits, or it took too much memory. */
  | { readonly kind: 'malformed' }

/** What of a page is looked at. What lies beyond is passed over, as if the page ended there. */
export const jsonLdLimits = {
  /** Of the page. */
  htmlBytesMax: 2 * 1024 * 1024,
  blocksMax: 5,
  /** Characters of all blocks of a page together. A block that exceeds what is left is passed over. */
  blockCharactersMax: 512 * 1024,
  /** Objects and lists within each other. */
  depthMax: 32,
  nodesMax: 500,
} as const

/** From the moment a thread has the page. A large honest page takes some tens of milliseconds. */
export const jsonLdTimeMaxMs = 1_000

/** Loading a thread takes some 50 ms; more than this means that the machine has no time for pages. */
const threadStartMaxMs = 5_000
/** More would take the processor from calls that wait for no page. */
const threadsMax = 2
const waitingMax = 32
const threadHeapMaxMb = 64

/** What a thread is sent, once it says that it is ready. */
export type PageToRead = { readonly html: Uint8Array<ArrayBuffer>; readonly charset: string | null }
/** What a thread says. */
export type PageRead =
  | { readonly kind: 'ready' }
  | { readonly kind: 'found'; readonly nodes: readonly JsonObject[] }
  | { readonly kind: 'none' }
  | { readonly kind: 'malformed' }

let threads = 0
const waiting: (() => void)[] = []

/**
 * Extracts the JSON-LD of a page. Takes at most `jsonLdTimeMaxMs` of parsing and settles by the deadline.
 *
 * `deadlineMs` is on the `performance.now()` clock. `charset` is what the Content-Type said; without it the page's own
 * `<meta charset>` counts, then UTF-8. Rejects only where a thread cannot be started, which is no page's fault.
 */
export const extractJsonLd = async (
  html: Uint8Array,
  { deadlineMs, charset = null }: { readonly deadlineMs: number; readonly charset?: string | null },
): Promise<JsonLd> => {
  if (!(await takeTurn(deadlineMs))) return { kind: 'too_slow' }
  try {
    // A copy of its own: a Buffer may be a window on memory that others use.
    const page = new Uint8Array(html.subarray(0, jsonLdLimits.htmlBytesMax))
    return await readInThread({ html: page, charset }, deadlineMs)
  } finally {
    threads--
    waiting.shift()?.()
  }
}

/** Waits for one of the threads. False: the deadline came first, or too many wait already. */
const takeTurn = (deadlineMs: number): Promise<boolean> => {
  const remainingMs = deadlineMs - performance.now()
  if (remainingMs <= 0) return Promise.resolve(false)
  if (threads < threadsMax) {
    threads++
    return Promise.resolve(true)
  }
  if (waiting.length >= waitingMax) return Promise.resolve(false)
  return new Promise((resolve) => {
    const begin = (): void => {
      clearTimeout(timer)
      threads++
      resolve(true)
    }
    const timer = setTimeout(() => {
      waiting.splice(waiting.indexOf(begin), 1)
      resolve(false)
    }, remainingMs)
    waiting.push(begin)
  })
}

const readInThread = (page: PageToRead, deadlineMs: number): Promise<JsonLd> =>
  new Promise((resolve, reject) => {
    const worker = new Worker(new URL('./json-ld-worker.ts', import.meta.url), {
      execArgv: [],
      // It needs nothing of ours, secrets least of all.
      env: {},
      resourceLimits: { maxOldGenerationSizeMb: threadHeapMaxMb, stackSizeMb: 4 },
    })
    const settle = (how: () => void): void => {
      clearTimeout(timer)
      worker.removeAllListeners()
      // A thread that is ended may still say that it failed; without a listener that would end the process.
      worker.on('error', () => undefined)
      // Settled only when the thread is gone: it is counted until then.
      worker.terminate().then(how, how)
    }
    const tooSlow = (): void => settle(() => resolve({ kind: 'too_slow' }))
    const remainingMs = (): number => Math.max(0, deadlineMs - performance.now())
    let timer = setTimeout(tooSlow, Math.min(threadStartMaxMs, remainingMs()))
    worker.on('message', (said: PageRead) => {
      if (said.kind !== 'ready') return settle(() => resolve(said))
      clearTimeout(timer)
      timer = setTimeout(tooSlow, Math.min(jsonLdTimeMaxMs, remainingMs()))
      worker.postMessage(page, [page.html.buffer])
    })
    worker.on('error', (error) =>
      settle(() =>
        isOutOfMemory(error)
          ? resolve({ kind: 'malformed' })
          : reject(new Error('a thread that reads pages failed', { cause: error })),
      ),
    )
    worker.on('exit', (code) =>
      settle(() => reject(new Error(`a thread that reads pages ended with code ${code} and said nothing`))),
    )
  })

const isOutOfMemory = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_OUT_OF_MEMORY'

/** A node's types without the vocabulary's prefix: `Person`, `Organization`. */
export const typesOf = (node: JsonObject): readonly string[] =>
  listOf(node['@type'])
    .filter((type) => typeof type === 'string')
    .map((type) => type.replace(/^(https?:\/\/(www\.)?schema\.org\/|schema:)/i, ''))

/** A member's values: none for null and for a member that is not there, one for a plain value, and a list's own. */
export const listOf = (value: unknown): readonly unknown[] =>
  value === undefined || value === null ? [] : Array.isArray(value) ? value : [value]

/** The first text or number among a member's values, `{"@value": …}` included, as it stands; null where there is none. */
export const textOf = (value: unknown): string | null => {
  for (const one of listOf(value)) {
    const plain = isJsonObject(one) ? one['@value'] : one
    if (typeof plain === 'string') return plain
    if (typeof plain === 'number') return String(plain)
  }
  return null
}

export const isJsonObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
