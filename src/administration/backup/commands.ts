import { z } from 'zod'
import { projections } from '../../../projections/index.ts'
import { keyDirOf } from '../../foundation/data-dir.ts'
import { removeMark } from '../../foundation/installation-mark.ts'
import { knownSecretKeysOf } from '../../foundation/secret-key.ts'
import { type Answer, type Context, type Host, onHost } from '../declare.ts'
import { verifyEventLog } from '../event-log/checkpoints.ts'
import { flag, path } from '../fields.ts'
import { InputFault } from '../input.ts'
import { reporter } from '../projections/progress.ts'
import { rebuild } from '../projections/rebuilds.ts'
import { ArchiveFault } from './archive.ts'
import { type CheckedBackup, checkBackup } from './check.ts'
import { type BackupProgress, createBackup } from './create.ts'
import { createFinalBackup } from './final.ts'
import {
  checkRestorable,
  checkTarget,
  type LoadedBackup,
  type RestoreProgress,
  recordRestored,
  removeOldPasswords,
  restoreBackup,
  webhooksWithOldSecret,
} from './restore.ts'

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`

const secretsNote = ({ config }: Pick<Host, 'config'>): string =>
  `The backup does not contain SECRET_KEY and KEY_DIR (${keyDirOf(config)}), and cannot be restored without them: keep copies of both in a different place.`

const create = onHost({
  name: 'backup create',
  action: 'log.change',
  summary:
    'back up all data that cannot be rebuilt, as of one moment, while the service runs; the file does not contain SECRET_KEY and KEY_DIR',
  input: z.object({
    file: path({ label: 'File', help: 'a new file, such as 2026-03-01.tar; mode 0600' }),
    final: flag({
      label: 'Final',
      help: 'to move the installation: requires a stopped service, which then cannot start here again',
    }),
  }),
  changes: { of: 'records', asks: 'never' },
  plan: async (_, { file, final }) => ({
    ...(final && { asks: 'always' }),
    says: [
      `Copy all data that cannot be rebuilt into ${file}, and record the backup.`,
      ...(final
        ? ['The installation will not start here again. It continues where the file is restored.']
        : []),
    ],
  }),
  run: async (host, { file: path, final }) => {
    const { config, logger, progress, waitMs } = host
    const { foundation, operator } = await host.open({ anyMark: final })
    const asked = {
      path,
      ...operator,
      onProgress: ({ table, readBytes, ofBytes }: BackupProgress) =>
        progress(`${table}: ${megabytes(readBytes)} of about ${megabytes(ofBytes)} read`),
    }
    // The operator has been identified, so the connections can be closed. Otherwise, they would be taken for a running service.
    if (final) await foundation.close()
    const { manifest, bytes, sha256, rows, elapsedMs } = final
      ? await createFinalBackup(config, asked, { logger, waitMs })
      : await createBackup(foundation, asked)
    const { backup_id, head, holds_log } = manifest
    return {
      json: {
        backup_id,
        file: path,
        bytes,
        sha256,
        position: head.position,
        final,
        holds_event_log: holds_log,
        rows,
        seconds: Math.round(elapsedMs) / 1000,
        not_included: ['SECRET_KEY', 'KEY_DIR'],
      },
      lines: [
        `${path}  ${megabytes(bytes)}  sha256 ${sha256}`,
        holds_log
          ? `The event log up to position ${head.position}, and every table that cannot be rebuilt from it.`
          : `Every table that cannot be rebuilt from the event log. The event log (${manifest.event_log}) is not in the backup: copy it now with its own tools.`,
        secretsNote(host),
        ...(final ? ['This installation will not start again. Restore the file on the new host.'] : []),
      ],
    }
  },
})

const backupFile = path({ label: 'File', help: 'a file from "backup create"' })

const verify = onHost({
  name: 'backup verify',
  action: 'log.change',
  summary: 'read a backup, and check that it is complete and from this installation; writes nothing',
  input: z.object({ file: backupFile }),
  changes: 'nothing',
  run: async ({ config, progress }, { file }) => {
    const secretKeys = await knownSecretKeysOf(config)
    if (secretKeys === null)
      throw new InputFault(
        'file',
        'SECRET_KEY is not set and DATA_DIR contains no key: a backup cannot be checked without the key',
      )
    return faulted(async () => {
      const backup = await checkBackup(file, {
        secretKeys,
        onProgress: (readBytes) => progress(`${megabytes(readBytes)} read`),
      })
      return {
        // The answer is a list, for compatibility.
        json: [backupJson(backup)],
        lines: [
          `ok  ${backup.path}  ${megabytes(backup.bytes)}  made ${backup.manifest.made_at}  position ${backup.manifest.head.position}  sha256 ${backup.sha256}`,
        ],
      }
    })
  },
})

const backupJson = ({ path, manifest, bytes, sha256, rows }: CheckedBackup) => ({
  ok: true,
  file: path,
  bytes,
  sha256,
  backup_id: manifest.backup_id,
  made_at: manifest.made_at,
  release: manifest.release,
  position: manifest.head.position,
  holds_event_log: manifest.holds_log,
  rows,
})

/** Reports a damaged file as an answer instead of a usage error. */
const faulted = async (work: () => Promise<Answer>): Promise<Answer> => {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof ArchiveFault)) throw error
    return { json: { ok: false, error: error.message }, failed: true, lines: [error.message] }
  }
}

const restore = onHost({
  name: 'backup restore',
  action: 'installation.change',
  summary:
    'restore a backup into an empty installation, verify its event log and rebuild every projection; the environment names the stores',
  input: z.object({
    file: backupFile,
    keys_lost: flag({
      label: 'Keys lost',
      help: 'restore even if keys in KEY_DIR are lost; profiles sealed under these keys are lost, too',
    }),
  }),
  changes: { of: 'records', asks: 'on a terminal' },
  plan: async ({ config, logger, progress }, { file, keys_lost: keysLost }) => {
    const { backup } = await checkRestorable(config, {
      path: file,
      keysLost,
      onProgress: (step) => progress(restoreStep(step)),
    })
    await checkTarget(config, { backup, logger, waitMs: restoreWaitMs })
    return [
      `Restore ${backup.path} into this empty installation: as of ${backup.manifest.made_at}, position ${backup.manifest.head.position}.`,
      ...(keysLost ? ['Profiles whose keys are lost stay sealed permanently.'] : []),
    ]
  },
  run: (host, { file, keys_lost: keysLost }) =>
    faulted(async () => {
      const { config, logger, progress } = host
      const startedAt = performance.now()
      const loaded = await restoreBackup(config, {
        path: file,
        keysLost,
        logger,
        waitMs: restoreWaitMs,
        onProgress: (step) => progress(restoreStep(step)),
      })
      const context = await host.open({
        anyEventLog: true,
        anyHistory: true,
        anyMark: true,
        restored: loaded.backup.manifest.installation_key,
      })
      return await proved(context, { ...loaded, startedAt })
    }),
})

const restoreWaitMs = 60_000

const restoreStep = (step: RestoreProgress): string =>
  step.phase === 'copied' ? `${step.events} events copied` : `${step.phase} ${megabytes(step.readBytes)}`

/** Verifies the event log before anything is derived from it. */
const proved = async (
  { foundation, operator, logger, progress }: Context,
  { backup, rows, since, startedAt }: LoadedBackup & { readonly startedAt: number },
): Promise<Answer> => {
  const { events, streams, faults } = await verifyEventLog(foundation, {
    against: undefined,
    onProgress: ({ position, head }) => progress(`verified up to ${position} of ${head}`),
  })
  if (faults.length > 0) {
    // The restored data equal the backup, so a repetition of the command would not help.
    await removeMark(foundation.pool)
    return {
      json: { ok: false, faults },
      failed: true,
      lines: [
        `the restored event log equals the backup, but is broken in ${faults.length} places, the first in ${faults[0]?.stream}: ${faults[0]?.fault}`,
        'See "event-log verify". No projection has been rebuilt yet: run "projection rebuild --all" to rebuild them.',
      ],
    }
  }
  const withoutPassword = await removeOldPasswords(foundation, backup)
  const withOldSecret = await webhooksWithOldSecret(foundation, backup)
  await recordRestored(foundation, backup, { ...operator, since })
  const rebuilt = await rebuild(foundation, {
    projections,
    reason: 'restored from a backup',
    ...operator,
    logger,
    mayForget: async () => true,
    onProgress: reporter(projections, { progress }),
  })
  await removeMark(foundation.pool)
  const { path, sha256, manifest } = backup
  const seconds = Math.round(performance.now() - startedAt) / 1000
  return {
    json: {
      ok: true,
      files: [{ file: path, sha256 }],
      made_at: manifest.made_at,
      position: manifest.head.position,
      events,
      streams,
      rows,
      folded_events: rebuilt.events,
      without_password: withoutPassword,
      with_old_secret: withOldSecret,
      seconds,
    },
    lines: [
      `restored as of ${manifest.made_at}, position ${manifest.head.position}: ${events} events in ${streams} streams verified, ${rebuilt.events} folded, in ${seconds} s`,
      manifest.holds_log
        ? 'Later changes are missing: repeat the calls, grants and key revocations since then. Later erasures are in KEY_DIR, and are applied when the service starts.'
        : 'The event log contains later changes, but these tables do not: pause again the webhooks that were paused, and invite again the users who were created.',
      ...(withoutPassword.length === 0
        ? []
        : [
            `These users changed their password since then. Set a new one with "user password": ${withoutPassword.join(', ')}`,
          ]),
      ...(withOldSecret.length === 0
        ? []
        : [
            `The secret of these webhooks was rotated since then, and their receivers refuse the restored secret. Rotate it again with "webhook rotate-secret": ${withOldSecret.join(', ')}`,
          ]),
      'Everyone must sign in to the dashboard again. Start the service, then check it with "doctor".',
    ],
  }
}

export const declarations = [create, verify, restore]
