/**
 * Runs before every test file. Passwords are hashed with little memory, because the suite signs in hundreds of times and hashing
 * as in production would take a tenth of its processor time.
 */
import crypto from 'node:crypto'
import { syncBuiltinESMExports } from 'node:module'

const { argon2 } = crypto

const argon2OfLittle: typeof argon2 = (algorithm, parameters, callback) =>
  argon2(algorithm, { ...parameters, memory: 8, passes: 1 }, callback)

// The test files of one worker share Node's modules.
if (argon2.name !== argon2OfLittle.name) {
  crypto.argon2 = argon2OfLittle
  syncBuiltinESMExports()
}
