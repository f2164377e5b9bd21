/**
 * A backup file is a tar archive with entries of limited size. Its last entry contains the digests of all other entries. The file
 * gets its final name only when it is complete and on disk.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { open, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { finished, pipeline } from 'node:stream/promises'
import tar from 'tar-stream'

/** A file that is damaged, incomplete or not a backup. `message` names the file and the damaged part. */
export class ArchiveFault extends Error {
  override name = 'ArchiveFault'
}

/** The maximum size of an entry. A reader loads each entry completely into memory. */
export const entryBytesMax = 64 * 1024 * 1024

export type ArchiveWriter = {
  /**
   * Resolves when the bytes have been accepted. A caller that waits for each entry keeps at most one unwritten entry in memory.
   * Rejects if the file cannot be written.
   */
  add(name: string, bytes: Buffer): Promise<void>
  /** Resolves when the file has its final name and is on disk. */
  finish(): Promise<FileDigest>
  /** Removes the unfinished file. */
  abandon(): Promise<void>
}

export type FileDigest = { readonly bytes: number; readonly sha256: string }

export const createArchive = async (path: string): Promise<ArchiveWriter> => {
  const partial = `${path}.partial`
  const file = await open(partial, 'wx', 0o600)
  const pack = tar.pack()
  const { pass, digest } = digesting()
  const written = pipeline(pack as AsyncIterable<Buffer>, pass, file.createWriteStream({ flush: true }))
  written.catch(() => undefined)
  return {
    add: async (name, content) => {
      try {
        const entry = pack.entry({ name, size: content.length, mode: 0o600, mtime: new Date(0) })
        const taken = finished(entry as unknown as NodeJS.WritableStream)
        taken.catch(() => undefined)
        entry.end(content)
        await Promise.race([taken, written])
      } catch (error) {
        // The error from the file is more useful than "the tar was closed".
        await written
        throw error
      }
    },
    finish: async () => {
      pack.finalize()
      await written
      await rename(partial, path)
      const directory = await open(dirname(path), 'r')
      await directory.sync().finally(() => directory.close())
      return digest()
    },
    abandon: async () => {
      pack.destroy()
      await written.catch(() => undefined)
      await rm(partial, { force: true })
    },
  }
}

/** Computes the digest of the bytes that pass through the stream. */
const digesting = () => {
  const hash = createHash('sha256')
  let bytes = 0
  return {
    pass: async function* (source: AsyncIterable<Buffer>) {
      for await (const chunk of source) {
        hash.update(chunk)
        bytes += chunk.length
        yield chunk
      }
    },
    digest: (): FileDigest => ({ bytes, sha256: hash.digest('hex') }),
  }
}

type ArchiveEntry = { readonly name: string; readonly bytes: Buffer; readonly sha256: string }

/**
 * Yields the entries in order and returns the file's digest. Throws `ArchiveFault` if the file is not a complete and undamaged
 * backup.
 */
export async function* readArchive(path: string): AsyncGenerator<ArchiveEntry, FileDigest> {
  const { pass, digest } = digesting()
  const extract = tar.extract()
  const reading = pipeline(createReadStream(path), pass, extract)
  reading.catch(() => undefined)
  try {
    for await (const entry of extract) {
      const { name, size = 0 } = entry.header
      if (size > entryBytesMax)
        throw new ArchiveFault(`${path} is damaged, or not a backup: ${name} is too long`)
      const chunks: Buffer[] = []
      for await (const chunk of entry) chunks.push(chunk as Buffer)
      const bytes = Buffer.concat(chunks)
      yield { name, bytes, sha256: createHash('sha256').update(bytes).digest('hex') }
    }
    await reading
  } catch (cause) {
    if (cause instanceof ArchiveFault) throw cause
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : null
    if (code !== null && /^E[A-Z]+$/.test(code))
      throw new ArchiveFault(`${path} cannot be read (${code})`, { cause })
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw new ArchiveFault(`${path} is damaged, incomplete or not a backup: ${reason}`, { cause })
  } finally {
    extract.destroy()
    await reading.catch(() => undefined)
  }
  return digest()
}
