import { styleText } from 'node:util'
import type { Finding } from '../administration/checks/check.ts'
import { examine } from '../start/doctor.ts'
import type { Command } from './command.ts'
import { plain } from './table.ts'

/** The maximum wait for a connection to close. A connection without an answer must not keep the process running. */
const endMaxMs = 2_000

export const doctorCommand: Command = {
  name: 'doctor',
  action: 'system.read',
  summary:
    'check everything that this installation needs, even if it is not running, and show faults and remedies; changes nothing',
  parameters: [],
  anyEnvironment: true,
  changes: 'nothing',
  run: async () => {
    const findings = await examine(process.env)
    const count = (level: Finding['level']): number => findings.filter((one) => one.level === level).length
    const [faults, warnings] = [count('fault'), count('warning')]
    setTimeout(() => process.exit(), endMaxMs).unref()
    return {
      json: {
        ok: faults === 0,
        faults,
        warnings,
        findings,
      },
      lines: [
        ...findings.flatMap(findingLines),
        '',
        `${findings.length} checks: ${faults} ${faults === 1 ? 'fault' : 'faults'}, ${warnings} ${warnings === 1 ? 'warning' : 'warnings'}`,
      ],
      failed: faults > 0,
    }
  },
}

const colours = { ok: 'green', warning: 'yellow', fault: 'red' } as const
const levelLength = 'warning'.length

const findingLines = ({ level, about, says, remedy }: Finding): string[] => [
  `${styleText(colours[level], level.padEnd(levelLength), { stream: process.stdout })}  ${about}: ${plain(says)}`,
  ...(remedy === null ? [] : [`${' '.repeat(levelLength)}  → ${plain(remedy)}`]),
]
