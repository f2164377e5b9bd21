import type { Parameter } from './command.ts'

export const dryRunParameter: Parameter = {
  name: 'dry-run',
  help: 'show what it would do, and write nothing',
  kind: 'flag',
}

export const referenceParameter: Parameter = {
  name: 'reference',
  help: 'what you call it elsewhere: given again, nothing is written twice',
}
