import { constants, createReadStream, fstatSync, openSync } from 'node:fs'
import { Socket } from 'node:net'
import { pipeline } from 'node:stream/promises'
import { createGunzip } from 'node:zlib'
import { z } from 'zod'
import { profileCache } from '../../../projections/profile-cache.ts'
import { command } from '../../administration/declare.ts'
import { anyText, line, path } from '../../administration/fields.ts'
import { InputFault } from '../../administration/input.ts'
import { recordImport } from '../../call/data-source.ts'
import { importProfilesFrom } from './dataset/installed.ts'
import { eraseProfile } from './record/erase.ts'
import { identifiersOf, type ProfileSettings } from './settings.ts'
import { erasureParts } from './storage.ts'

const importProfiles = command({
  name: 'profiles import',
  action: 'data.change',
  summary:
    'import people into the data set of the provider "dataset"; each line replaces all data about one person',
  input: z.object({
    file: path({ label: 'File', help: 'JSON Lines, optionally compressed (.gz); - for standard input' }),
  }),
  interfaces: ['command line'],
  changes: { of: 'people', asks: 'never' },
  plan: async (_, { file }) =>
    `Import the people in ${file} into the data set. Each line replaces all data about one person.`,
  run: async ({ foundation, operator, data, progress }, { file }) => {
    const { settings } = await data()
    const input = file === '-' ? process.stdin : opened(file)
    const stream = file.endsWith('.gz') ? unpacked(input) : input
    const report = await importProfilesFrom(foundation, settings, {
      stream: stream as AsyncIterable<Uint8Array>,
      onProgress: ({ lines, imported }) => progress(`${lines} lines read, ${imported} people imported`),
    })
    if (report.imported > 0)
      await recordImport(
        foundation.eventLog,
        { data: 'profiles', source: null, as_of: null, imported: report.imported },
        operator,
      )
    return {
      json: {
        lines: report.lines,
        imported: report.imported,
        gone: report.gone,
        suppressed: report.suppressed,
        bad: report.bad,
        bad_lines: report.badLines,
      },
      failed: report.imported === 0 && report.bad > 0,
    }
  },
})

/**
 * A named pipe is read like standard input, because a thread that waits for the writer of the pipe would keep an interrupted process running.
 */
const opened = (file: string) => {
  const fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK)
  return fstatSync(fd).isFIFO()
    ? new Socket({ fd, readable: true, writable: false })
    : createReadStream(file, { fd })
}

/** An error in the file also ends the decompression, because its reader would otherwise wait forever. */
const unpacked = (input: NodeJS.ReadableStream): AsyncIterable<Uint8Array> => {
  const gunzip = createGunzip()
  pipeline(input, gunzip).catch(() => undefined)
  return gunzip
}

const refOf = (settings: ProfileSettings, id: string) => {
  const ref = identifiersOf(settings).parse(id)
  if (ref === null)
    throw new InputFault('id', 'the value must be a profile id, a profile URL or a person URN')
  return ref
}

const eraseProfiles = command({
  name: 'profiles erase',
  action: 'profiles.erase',
  summary:
    'erase a person; the keys of their recorded data are destroyed, and their data are never fetched, served or imported again',
  input: z.object({
    id: anyText({ label: 'Person', help: 'profile id, URL or URN' }),
    note: line({
      label: 'Note',
      help: 'such as the number of the request; do not enter personal data, because the note stays in the event log',
    }).optional(),
  }),
  changes: { of: 'people', asks: 'always' },
  plan: async ({ data }, { id }) => {
    refOf((await data()).settings, id)
    return 'Erase a person: the keys of their recorded data are destroyed, and their data are never fetched, served or imported again. This cannot be undone.'
  },
  run: async ({ foundation, operator, data }, { id, note = null }) => {
    const { settings, folded, vacuum } = await data()
    const ref = refOf(settings, id)
    await folded()
    const erased = await eraseProfile(erasureParts(foundation), ref, { ...operator, note })
    await folded()
    const kept = await vacuum({ tables: ['profile_keys', 'profile_dataset'], projections: [profileCache] })
    const goneBy = new Date(await foundation.epochKeys.lastCopyGoneByMs()).toISOString()
    const suppressed = `${erased.identifiers} ${erased.identifiers === 1 ? 'identifier is' : 'identifiers are'} suppressed and will never be fetched, served or imported again.`
    return {
      json: {
        erased: true,
        subjects: erased.subjects,
        identifiers_suppressed: erased.identifiers,
        last_copy_gone_by: goneBy,
        vacuumed: kept === null,
      },
      failed: kept !== null,
      lines: [
        erased.subjects === 0
          ? 'No recorded person has this identifier, so there was nothing to destroy.'
          : `Erased: the data about the person${erased.subjects === 1 ? '' : ` (${erased.subjects} entries)`} can no longer be read.`,
        suppressed,
        `Free space in the tables, the write-ahead log and backups may still contain encrypted copies. They cannot be opened from ${goneBy} on, when a process with the role "jobs" has destroyed their last key. Delete copies of KEY_DIR made before that time.`,
        ...(kept === null
          ? []
          : [
              `The tables could not be vacuumed: ${kept}. The date above still applies; run the command again, or vacuum the tables as their owner.`,
            ]),
      ],
    }
  },
})

export const profileDeclarations = [importProfiles, eraseProfiles]
