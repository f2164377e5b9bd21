/** All commands of the command line. */
import { allCommands } from '../../src/cli/nouns.ts'

export const commands = await allCommands()
