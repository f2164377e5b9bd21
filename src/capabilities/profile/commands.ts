import { createReadStream } from 'node:fs'
import { pipeline } from 'node:stream/promises'
import { createGunzip } from 'node:zlib'
import { profileCache } from '../../../projections/profile-cache.ts'
import { InputFault, labelOf } from '../../administration/input.ts'
import type { CapabilityCommand, Given } from '../../call/command.ts'
import { recordImport } from '../../call/data-source.ts'
import { importProfilesFrom } from './dataset/installed.ts'
import { eraseProfile } from './record/erase.ts'
import { identifiersOf, type ProfileSettings } from './settings.ts'
import { erasureParts } from './storage.ts'

export const profilesImport: CapabilityCommand<ProfileSettings> = {
  name: 'profiles import',
  summary:
    'take people into the data set of the "dataset" provider; a line replaces what was known of its person',
  parameters: [
    { name: 'file', help: 'JSON lines, .gz or not; - for standard input', required: true, kind: 'file' },
  ],
  changes: {
    of: 'people',
    asks: 'never',
    left: 'The lines up to some point are imported: the same file again changes nothing of them.',
    plan: async (_, given) => ({
      says: [
        `Take the people of ${given.required('file')} into the data set; a line replaces what was known of its person.`,
      ],
    }),
  },
  run: async ({ settings, storage, progress }, given) => {
    const file = given.required('file')
    const input = file === '-' ? process.stdin : createReadStream(file)
    const stream = file.endsWith('.gz') ? unpacked(input) : input
    const open = await storage()
    const report = await importProfilesFrom(open, settings, {
      stream: stream as AsyncIterable<Uint8Array>,
      onProgress: ({ lines, imported }) => progress(`${lines} lines read, ${imported} people imported`),
    })
    if (report.imported > 0)
      await recordImport(
        open.eventLog,
        { data: 'profiles', source: null, as_of: null, imported: report.imported },
        open.operator,
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
}

/** An error in the file also ends the reader, instead of leaving it waiting. */
const unpacked = (input: NodeJS.ReadableStream): AsyncIterable<Uint8Array> => {
  const gunzip = createGunzip()
  pipeline(input, gunzip).catch(() => undefined)
  return gunzip
}

const refOf = (settings: ProfileSettings, given: Given) => {
  const ref = identifiersOf(settings).parse(given.required('id'))
  if (ref === null) throw new InputFault('id', 'neither a profile id, nor a profile URL, nor a person URN')
  return ref
}

export const profilesErase: CapabilityCommand<ProfileSettings> = {
  name: 'profiles erase',
  summary:
    'forget a person: destroy the keys of what is recorded, and never fetch, serve or import them again',
  parameters: [
    { name: 'id', help: 'profile id, URL or URN', required: true },
    { name: 'note', help: 'such as the number of the request; kept in the event log, so nothing personal' },
  ],
  changes: {
    of: 'people',
    asks: 'always',
    left: 'Something of the person may be left: the same command again erases the rest.',
    plan: async ({ settings }, given) => {
      const noted = given.text('note')
      if (noted !== undefined) labelOf('note', noted)
      refOf(settings, given)
      return {
        says: [
          'Forget a person: destroy the keys of what is recorded of them, and never fetch, serve or import them again. Nothing takes this back.',
        ],
      }
    },
  },
  run: async ({ settings, storage, caughtUp, vacuum }, given) => {
    // Read before anything is erased, because its event is written after the keys are destroyed.
    const noted = given.text('note')
    const note = noted === undefined ? null : labelOf('note', noted)
    const open = await storage()
    await caughtUp()
    const ref = refOf(settings, given)
    const erased = await eraseProfile(erasureParts(open), ref, { ...open.operator, note })
    await caughtUp()
    const kept = await vacuum({ tables: ['profile_keys', 'profile_dataset'], projections: [profileCache] })
    const goneBy = new Date(await open.epochKeys.lastCopyGoneByMs()).toISOString()
    const suppressed = `${erased.identifiers} ${erased.identifiers === 1 ? 'identifier is' : 'identifiers are'} suppressed: never fetched, served or imported again.`
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
          ? 'Nobody is known by it any more; no record was left to destroy.'
          : `Erased: what was recorded of ${erased.subjects === 1 ? 'the person' : `${erased.subjects} entries of the person`} cannot be read any more.`,
        suppressed,
        `What heap, write-ahead log and backups still hold of it opens for nobody from ${goneBy} on, when the last key it is under is destroyed; a process with the role "jobs" does that. Copies of KEY_DIR made before then have to be deleted.`,
        ...(kept === null
          ? []
          : [
              `The tables could not be vacuumed: ${kept}. The date holds; run the command again, or vacuum as their owner.`,
            ]),
      ],
    }
  },
}
