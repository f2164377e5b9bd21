import type { Foundation } from '../../foundation/foundation.ts'
import { recordOperation, recordOperationOnce } from '../operator-events.ts'
import type { CheckedBackup } from './check.ts'
import type { MadeBackup } from './create.ts'

type Log = Pick<Foundation, 'eventLog'>

export const recordBackup = (
  { eventLog }: Log,
  { manifest, bytes, sha256 }: Pick<MadeBackup, 'manifest' | 'bytes' | 'sha256'>,
  actor: string,
): Promise<string> => {
  const { backup_id, head } = manifest
  const data = { backup_id, position: head.position, bytes, sha256 }
  return recordOperation(eventLog, { type: 'BackupCreated', data }, { actor })
}

/** Records a restore once, even if the command is repeated. `since` is the time the restore began. */
export const recordRestored = (
  { eventLog }: Log,
  { manifest, sha256 }: CheckedBackup,
  { actor, since }: { readonly actor: string; readonly since: Date },
): Promise<void> => {
  const { backup_id, made_at, head } = manifest
  const data = { backup_id, made_at, position: head.position, files: [sha256] }
  const once = `restored/${backup_id}/${since.toISOString()}`
  return recordOperationOnce(eventLog, { type: 'BackupRestored', data }, { actor, once })
}
