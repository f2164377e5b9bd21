import { appendNext } from '../../event-log/append-next.ts'
import { eventIdOf } from '../../event-log/event-id.ts'
import { encodeEvent } from '../../event-log/stored-event.ts'
import type { DomainEvent } from '../../events/catalogue.ts'
import { operatorStream } from '../../events/streams.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import type { CheckedBackup } from './check.ts'
import type { MadeBackup } from './create.ts'

type Log = Pick<Foundation, 'eventLog'>

export const recordBackup = (
  { eventLog }: Log,
  { manifest, bytes, sha256 }: Pick<MadeBackup, 'manifest' | 'bytes' | 'sha256'>,
  actor: string,
): Promise<void> =>
  record(eventLog, actor, `backup/${manifest.backup_id}`, {
    type: 'BackupCreated',
    data: {
      backup_id: manifest.backup_id,
      position: manifest.head.position,
      after: manifest.after?.backup_id ?? null,
      bytes,
      sha256,
    },
  })

export const recordRestored = (
  { eventLog }: Log,
  chain: readonly CheckedBackup[],
  actor: string,
): Promise<void> => {
  const last = chain.at(-1)
  if (last === undefined) throw new Error('a restore is of one backup at least')
  const { backup_id, made_at, head } = last.manifest
  const files = chain.slice(-filesMax).map(({ sha256 }) => sha256)
  return record(eventLog, actor, `restored/${backup_id}/${new Date().toISOString()}`, {
    type: 'BackupRestored',
    data: { backup_id, made_at, position: head.position, files },
  })
}

/** The newest of the files are named. */
const filesMax = 32

const record = async (
  eventLog: Foundation['eventLog'],
  actor: string,
  key: string,
  event: DomainEvent,
): Promise<void> => {
  const effectiveAt = new Date().toISOString()
  const id = eventIdOf(operatorStream, key, 0)
  await appendNext(eventLog, operatorStream, [encodeEvent(event, { id, actor, effectiveAt })])
}
