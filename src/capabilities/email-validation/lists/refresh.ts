/**
 * Builds the two generated lists, `disposable.txt` and `free.txt`, from other projects' current lists.
 *
 * `sieve.ts` checks every entry, implausible changes are refused, and the files are replaced only after every check has passed.
 */
import { randomUUID } from 'node:crypto'
import { readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { listPath, vendoredListFolder } from './file.ts'
import { openListedDomains } from './listed-domains.ts'
import { packagedLists, type RawLists } from './packages.ts'
import { type Curated, type Sifted, siftLists } from './sieve.ts'

export type ListSource = {
  /** Also the name of the source's file, without `.txt`, in a folder of downloads. */
  readonly name: string
  readonly url: string
  readonly licence: 'CC0-1.0' | 'MIT' | 'BSD-3-Clause'
  readonly feeds: 'disposable' | 'free'
}

const defaultListSources: readonly ListSource[] = [
  {
    name: 'disposable-email-domains',
    url: 'https://raw.githubusercontent.com/disposable-email-domains/disposable-email-domains/main/disposable_email_blocklist.conf',
    licence: 'CC0-1.0',
    feeds: 'disposable',
  },
  {
    name: 'mailchecker',
    url: 'https://raw.githubusercontent.com/FGRibreau/mailchecker/master/list.txt',
    licence: 'MIT',
    feeds: 'disposable',
  },
  {
    name: 'disposable-domains',
    url: 'https://raw.githubusercontent.com/tompec/disposable-email-domains/HEAD/index.json',
    licence: 'MIT',
    feeds: 'disposable',
  },
  {
    name: 'disposable',
    url: 'https://raw.githubusercontent.com/disposable/disposable-email-domains/HEAD/domains.txt',
    licence: 'MIT',
    feeds: 'disposable',
  },
  {
    name: 'fakefilter',
    url: 'https://raw.githubusercontent.com/7c/fakefilter/HEAD/txt/data.txt',
    licence: 'BSD-3-Clause',
    feeds: 'disposable',
  },
  {
    name: 'free-email-domains',
    url: 'https://raw.githubusercontent.com/Kikobeats/free-email-domains/master/domains.json',
    licence: 'MIT',
    feeds: 'free',
  },
]

type RefreshOptions = {
  readonly folder?: string
  readonly packaged?: () => RawLists
  readonly sources?: readonly ListSource[]
  /** A folder of downloaded files `<source name>.txt`, used instead of the network. */
  readonly from?: string
  readonly now: Date
  /** The time limit for all downloads together. */
  readonly deadlineMs?: number
  /** The size limit for one source. */
  readonly sizeBytesMax?: number
}

type ListChange = {
  readonly before: number
  readonly after: number
  readonly added: number
  readonly removed: number
  /** The number of source entries that were not used, by reason. */
  readonly left: Readonly<Record<string, number>>
}
type RefreshReport = { readonly disposable: ListChange; readonly free: ListChange }

/** Thrown if a refreshed list must not be used. No file has changed. */
export class ListRefused extends Error {
  override readonly name = 'ListRefused'
}

const deadlineDefaultMs = 60_000
const sizeDefaultBytesMax = 8 * 1024 * 1024
const entriesMax = 300_000
/** Lists grow by a few per cent per month. A larger change means that a source has changed its content or was manipulated. */
const shrinkMax = 0.2
const growMax = 0.5
const domainPattern =
  /^(?=.{4,253}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])$/
/** Domains that every list of disposable domains must contain. */
const disposableSentinels = ['mailinator.com', 'guerrillamail.com', 'yopmail.com']
const freeSentinels = ['mail2world.com', 'gmail.com', 'hotmail.com']
/** Domains that must not be in any list of disposable domains. A source with one of these is not used. */
const neverDisposable = [
  'gmail.com',
  'outlook.com',
  'hotmail.com',
  'yahoo.com',
  'icloud.com',
  'qq.com',
  'mail.ru',
]

/**
 * Downloads or reads the sources, builds both lists and replaces the files.
 * @throws ListRefused if a list fails a check or a source cannot be fetched. In that case, no file has changed.
 */
export const refreshLists = async ({
  folder = vendoredListFolder,
  packaged = packagedLists,
  sources = defaultListSources,
  from,
  now,
  deadlineMs = deadlineDefaultMs,
  sizeBytesMax = sizeDefaultBytesMax,
}: RefreshOptions): Promise<RefreshReport> => {
  const signal = AbortSignal.timeout(deadlineMs)
  const texts = new Map<ListSource, string>()
  for (const source of sources) {
    const text =
      from === undefined
        ? await download(source, { signal, sizeBytesMax })
        : await readFile(join(from, `${source.name}.txt`), 'utf8')
    texts.set(source, text)
  }
  const { curated, raw } = openListedDomains(folder, packaged)
  const built = buildLists(texts, curated)
  const current = siftLists(raw, curated)
  const report = {
    disposable: changeOf('disposable', current.disposable.entries, built.disposable),
    free: changeOf('free', current.free.entries, built.free),
  }
  await replaceFiles(
    (['disposable', 'free'] as const).map((name) => ({
      path: listPath(folder, name),
      text: fileText(built[name].entries, {
        sources: sources.filter(({ feeds }) => feeds === name || name === 'free'),
        now,
      }),
    })),
  )
  return report
}

const buildLists = (
  texts: ReadonlyMap<ListSource, string>,
  curated: Curated,
): { disposable: Sifted; free: Sifted } => {
  const raw = { disposable: new Set<string>(), free: new Set<string>() }
  for (const [source, text] of texts) {
    const entries = sourceEntries(source, text)
    const trap = source.feeds === 'disposable' ? neverDisposable.find((name) => entries.has(name)) : undefined
    if (trap !== undefined) throw new ListRefused(`${source.name} lists ${trap} as disposable`)
    for (const entry of entries) raw[source.feeds].add(entry)
  }
  requireEntries('disposable', raw.disposable, disposableSentinels)
  requireEntries('free', raw.free, freeSentinels)
  return siftLists(raw, curated)
}

const sourceEntries = ({ name }: ListSource, text: string): Set<string> => {
  const lines: readonly unknown[] = text.trimStart().startsWith('[')
    ? jsonArray(name, text)
    : text.split('\n')
  if (lines.length > entriesMax) throw new ListRefused(`${name} has more than ${entriesMax} entries`)
  const entries = new Set<string>()
  for (const line of lines) {
    if (typeof line !== 'string') throw new ListRefused(`${name} contains an entry that is not a string`)
    const entry = line.trim().toLowerCase()
    if (domainPattern.test(entry)) entries.add(entry)
  }
  return entries
}

const jsonArray = (name: string, text: string): unknown[] => {
  try {
    const value: unknown = JSON.parse(text)
    if (Array.isArray(value)) return value
  } catch (error) {
    throw new ListRefused(`${name} is damaged JSON`, { cause: error })
  }
  throw new ListRefused(`${name} is JSON, but not an array`)
}

const requireEntries = (what: string, entries: ReadonlySet<string>, sentinels: readonly string[]): void => {
  const missing = sentinels.find((name) => !entries.has(name))
  if (missing !== undefined)
    throw new ListRefused(`the sources of the ${what} list do not contain ${missing}`)
}

const changeOf = (
  name: 'disposable' | 'free',
  current: readonly string[],
  { entries, left }: Sifted,
): ListChange => {
  const old = new Set(current)
  const before = old.size
  const after = entries.length
  if (before > 0 && after < before * (1 - shrinkMax))
    throw new ListRefused(`the ${name} list would shrink from ${before} to ${after} entries`)
  if (before > 0 && after > before * (1 + growMax))
    throw new ListRefused(`the ${name} list would grow from ${before} to ${after} entries`)
  const kept = entries.filter((entry) => old.has(entry)).length
  return { before, after, added: after - kept, removed: before - kept, left }
}

const fileText = (
  entries: readonly string[],
  { sources, now }: { sources: readonly ListSource[]; now: Date },
): string =>
  [
    `# Generated ${now.toISOString().slice(0, 10)}, not edited. ${entries.length} domains; see provenance.md.`,
    ...sources.map(({ name, licence, url }) => `# From ${name} (${licence}): ${url}`),
    ...entries,
    '',
  ].join('\n')

/** Writes every string to disk before the first file is replaced; readers see either the complete old file or the complete new one. */
const replaceFiles = async (files: readonly { path: string; text: string }[]): Promise<void> => {
  const drafts = files.map((file) => ({ ...file, draft: `${file.path}.${randomUUID()}` }))
  try {
    for (const { draft, text } of drafts) await writeFile(draft, text, { flag: 'wx', flush: true })
    for (const { path, draft } of drafts) await rename(draft, path)
  } finally {
    for (const { draft } of drafts) await rm(draft, { force: true })
  }
}

const download = async (
  { name, url }: ListSource,
  { signal, sizeBytesMax }: { signal: AbortSignal; sizeBytesMax: number },
): Promise<string> => {
  const cannot = (why: string, cause?: unknown): ListRefused =>
    new ListRefused(`${name} cannot be downloaded: ${why}`, { cause })
  try {
    const response = await fetch(url, {
      signal,
      redirect: 'error',
      headers: { accept: 'text/plain, application/json' },
    })
    if (!response.ok || response.body === null) {
      await response.body?.cancel()
      throw cannot(`the answer is ${response.status}`)
    }
    const chunks: Uint8Array[] = []
    let sizeBytes = 0
    for await (const chunk of response.body) {
      sizeBytes += chunk.byteLength
      if (sizeBytes > sizeBytesMax) throw cannot(`the file is larger than ${sizeBytesMax} bytes`)
      chunks.push(chunk)
    }
    return Buffer.concat(chunks).toString('utf8')
  } catch (error) {
    if (error instanceof ListRefused) throw error
    throw cannot(signal.aborted ? 'the time limit was exceeded' : 'the connection failed', error)
  }
}
