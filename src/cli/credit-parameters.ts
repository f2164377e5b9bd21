import type { Parameter } from './command.ts'

export const referenceParameter: Parameter = {
  name: 'reference',
  help: 'what you call it elsewhere: given again, nothing is written twice',
}
