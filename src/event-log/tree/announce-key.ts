import { announcementOf, appendedTo } from './append.ts'
import { CheckpointRefused, type Making } from './make-checkpoint.ts'

/** As `Checkpoints.announceKey`. */
export const announceKey = async (
  { eventLog, keys, read }: Making,
  { actor, reason }: { actor: string; reason: string },
): Promise<{ keyId: string; vouchedFor: boolean }> => {
  const stream = await read()
  const announced = stream.keys.at(-1)
  const present = announced === undefined ? null : await keys.find(announced.id)
  // Where the announced key is lost, the one that is here in its place, if any, is the one to be announced.
  const key = present === null ? await keys.first() : await keys.next()
  if (key.id === announced?.id) throw new CheckpointRefused(`the log has announced ${key.id} already`)
  const previous = announced === undefined ? null : { id: announced.id, key: present }
  const event = announcementOf(key, { previous, actor, reason })
  if (!(await appendedTo(eventLog, stream, [event], actor)))
    throw new CheckpointRefused('another process wrote to the stream of checkpoints meanwhile. Ask again')
  // It takes the other's place.
  await keys.find(key.id)
  return { keyId: key.id, vouchedFor: present !== null }
}
