import type { Foundation } from '../../foundation/foundation.ts'
import { recordOperation } from '../operator-events.ts'
import type { CheckedBackup } from './check.ts'
import type { MadeBackup } from './create.ts'

type Log = Pick<Foundation, 'eventLog'>

export const recordBackup = (
  { eventLog }: Log,
  { manifest, bytes, sha256 }: Pick<MadeBackup, 'manifest' | 'bytes' | 'sha256'>,
  actor: string,
): Promise<string> => {
  const { backup_id, head, after } = manifest
  const data = { backup_id, position: head.position, after: after?.backup_id ?? null, bytes, sha256 }
  return recordOperation(eventLog, { type: 'BackupCreated', data }, { actor, once: `backup/${backup_id}` })
}

export const recordRestored = (
  { eventLog }: Log,
  chain: readonly CheckedBackup[],
  actor: string,
): Promise<string> => {
  const last = chain.at(-1)
  if (last === undefined) throw new Error('a restore is of one backup at least')
  const { backup_id, made_at, head } = last.manifest
  const files = chain.slice(-filesMax).map(({ sha256 }) => sha256)
  const data = { backup_id, made_at, position: head.position, files }
  const once = `restored/${backup_id}/${new Date().toISOString()}`
  return recordOperation(eventLog, { type: 'BackupRestored', data }, { actor, once })
}

/** The newest of the files are named. */
const filesMax = 32
