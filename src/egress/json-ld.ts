/**
 * Reads the JSON-LD of a web page (`<script type="application/ld+json">`) without trusting the page.
 *
 * Hostile markup can keep a parser busy, so each page is parsed in its own thread, which is killed when its time is up. The caller's reader also
 * runs in that thread and within that time, so the main thread gets only the reader's answer and never raw text of the page.
 */
import { Worker } from 'node:worker_threads'

/** `module` must export `read`, a `ReadNodes`. Its `input` and its answer are copied between threads (structured clone). */
type NodeReader = { readonly module: URL; readonly input: unknown }

type JsonLd<Answer> =
  | { readonly kind: 'found'; readonly answer: Answer }
  | { readonly kind: 'none' }
  /** The time ran out, or too many pages were being read. */
  | { readonly kind: 'too_slow' }
  /** The JSON-LD is not JSON, exceeds the limits, or needs too much memory. */
  | { readonly kind: 'malformed' }

/** The limits for the part of a page that is read. The rest is ignored. */
export const jsonLdLimits = {
  htmlBytesMax: 2 * 1024 * 1024,
  blocksMax: 5,
  /** For all blocks of a page together. A block that would exceed this limit is skipped. */
  blockCharactersMax: 512 * 1024,
  depthMax: 32,
  nodesMax: 500,
  /** Longer strings are truncated. No reader stores longer ones. */
  textCharactersMax: 16_384,
} as const

/** The time limit from the moment when a thread gets a page until the reader answers. A large normal page takes tens of milliseconds. */
export const jsonLdTimeMaxMs = 1_000

/** Loading a thread and its reader takes about 150 ms. If it takes longer than this limit, the machine is too busy for pages. */
const threadStartMaxMs = 5_000
/** More threads would take processor time from calls that do not need a page. */
const threadsMax = 2
const waitingMax = 32
const threadHeapMaxMb = 64

/** The message to a thread that is ready. */
export type PageToRead = { readonly html: Uint8Array<ArrayBuffer>; readonly charset: string | null }
export type PageThread = { readonly module: string; readonly input: unknown }
export type PageRead =
  | { readonly kind: 'ready' }
  | { readonly kind: 'found'; readonly answer: unknown }
  | { readonly kind: 'none' }
  | { readonly kind: 'malformed' }

let threads = 0
const waiting: (() => void)[] = []

/**
 * Reads the JSON-LD of a page before `deadlineMs`, a time of `performance.now()`. `charset` is the charset in the Content-Type. If it is null, the
 * page's `<meta charset>` or UTF-8 is used. Rejects only if a thread cannot be started, which does not depend on the page.
 */
export const readJsonLd = async <Answer>(
  html: Uint8Array,
  {
    deadlineMs,
    charset = null,
    reader,
  }: { readonly deadlineMs: number; readonly charset?: string | null; readonly reader: NodeReader },
): Promise<JsonLd<Answer>> => {
  if (!(await takeTurn(deadlineMs))) return { kind: 'too_slow' }
  try {
    // Copied, because a Buffer can share its memory with other Buffers.
    const page = new Uint8Array(html.subarray(0, jsonLdLimits.htmlBytesMax))
    const thread = { module: reader.module.href, input: reader.input }
    return (await readInThread({ html: page, charset }, thread, deadlineMs)) as JsonLd<Answer>
  } finally {
    threads--
    waiting.shift()?.()
  }
}

/** Waits for a thread. Returns false if the deadline is reached first, or if too many callers are waiting. */
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

const readInThread = (page: PageToRead, thread: PageThread, deadlineMs: number): Promise<JsonLd<unknown>> =>
  new Promise((resolve, reject) => {
    const worker = new Worker(new URL('./json-ld-worker.ts', import.meta.url), {
      execArgv: [],
      workerData: thread,
      // The thread needs no environment variables, and must not have access to the secrets in them.
      env: {},
      resourceLimits: { maxOldGenerationSizeMb: threadHeapMaxMb, stackSizeMb: 4 },
    })
    const settle = (how: () => void): void => {
      clearTimeout(timer)
      worker.removeAllListeners()
      // A thread that is being terminated can still emit an error, which would crash the process without a listener.
      worker.on('error', () => undefined)
      // Settles only when the thread has exited, because a running thread counts toward `threadsMax`.
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
          : reject(new Error('a thread that reads JSON-LD failed', { cause: error })),
      ),
    )
    worker.on('exit', (code) =>
      settle(() =>
        reject(new Error(`a thread that reads JSON-LD exited with code ${code} and without an answer`)),
      ),
    )
  })

const isOutOfMemory = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_OUT_OF_MEMORY'
