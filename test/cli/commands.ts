/** Every command, of all nouns. */
import { allCommands } from '../../src/cli/nouns.ts'

export const commands = await allCommands()
