import { join } from 'node:path'
import { z } from 'zod'
import { addressesNow } from '../../foundation/addresses.ts'
import { migrationsToApply } from '../../foundation/database.ts'
import type { Finding } from '../checks/check.ts'
import { onHost, shells } from '../declare.ts'
import { choice } from '../fields.ts'
import { demoFile, seedDemo, writeDemo } from '../seed.ts'

const seed = onHost({
  name: 'seed',
  action: 'installation.change',
  summary: 'create another demo organization with a key and 1,000 credits; the demo user gets a new password',
  input: z.object({}),
  changes: { of: 'access', asks: 'never' },
  plan: async () =>
    'Create a demo organization with a key and 1,000 credits, and give the demo user a new password.',
  run: async ({ open, config }) => {
    const { foundation, operator } = await open()
    const demo = await seedDemo(foundation, { ...(await addressesNow(config)), ...operator })
    if (!foundation.embedded) return { json: demo }
    // Later starts read this file and print its path.
    await writeDemo(config.DATA_DIR, demo)
    return {
      json: demo,
      sections: [
        demo,
        `${join(config.DATA_DIR, demoFile)} now contains this organization and the new password of user ${demo.dashboard_user}; earlier demo keys still work.`,
      ],
    }
  },
})

const doctor = onHost({
  name: 'doctor',
  action: 'system.read',
  summary:
    'check everything that this installation needs, even if it is not running, and show faults and remedies; changes nothing',
  input: z.object({}),
  anyEnvironment: true,
  changes: 'nothing',
  run: async ({ examine }) => {
    const findings = await examine()
    const count = (level: Finding['level']): number => findings.filter((one) => one.level === level).length
    const [faults, warnings] = [count('fault'), count('warning')]
    return {
      json: { ok: faults === 0, faults, warnings, findings },
      lines: [
        ...findings.flatMap(findingLines),
        '',
        `${findings.length} checks: ${faults} ${faults === 1 ? 'fault' : 'faults'}, ${warnings} ${warnings === 1 ? 'warning' : 'warnings'}`,
      ],
      failed: faults > 0,
    }
  },
})

const levelLength = 'warning'.length

const findingLines = ({ level, about, says, remedy }: Finding): string[] => [
  `${level.padEnd(levelLength)}  ${about}: ${says}`,
  ...(remedy === null ? [] : [`${' '.repeat(levelLength)}  → ${remedy}`]),
]

/** Applies the migrations. Run before many processes are started at the same time. */
const migrate = onHost({
  name: 'migrate',
  action: 'installation.change',
  summary: 'migrate the database to this release; every start does this too',
  input: z.object({}),
  changes: { of: 'rows', asks: 'never' },
  plan: async ({ config, logger, waitMs }) => {
    const pending = await migrationsToApply(config, { logger, waitMs })
    return {
      says:
        pending.length === 0
          ? ['Nothing: the database has every migration of this release.']
          : [
              `Apply ${pending.length === 1 ? 'a migration' : `${pending.length} migrations`} missing from the database: ${pending.join(', ')}.`,
            ],
      json: { migrations: pending },
      sections: [],
    }
  },
  run: async ({ open }) => {
    await open()
    return { json: { migrated: true } }
  },
})

const completion = onHost({
  name: 'completion',
  action: 'system.read',
  summary:
    'print a completion script for a shell; it also defines "enl", which runs this command line from any folder',
  input: z.object({ shell: choice({ label: 'Shell', help: 'the shell' }, shells) }),
  anyEnvironment: true,
  changes: 'nothing',
  run: async (host, { shell }) => {
    const script = await host.completion(shell)
    return { json: { shell, script: script.join('\n') }, lines: script }
  },
})

export const declarations = [seed, doctor, migrate, completion]
