/** All commands of the command line. */
import { allCommands } from '../../src/administration/nouns.ts'

export const commands = await allCommands()
