import pg from 'pg'
import { DatabaseClient } from '../../src/concurrency/database-client.ts'

/** A program that sends statements with large parameters, and prints how many bytes of them remain in memory after minor collections. */

const [, , connectionString = '', by = ''] = process.argv
const bytes = 100_000
const statements = 200

if (globalThis.gc === undefined) throw new Error('start this program with --expose-gc')
const pool = new pg.Pool({ Client: DatabaseClient, connectionString, query_timeout: 10_000 })
const client = await pool.connect()
const held = process.memoryUsage().arrayBuffers
if (by === 'the pool') client.release()
for (let n = 0; n < statements; n++) {
  const values = [Buffer.alloc(bytes)]
  await (by === 'the pool' ? pool : client).query({ text: 'select length($1::bytea)', values })
  if (n % 20 === 19) globalThis.gc({ type: 'minor' })
}
if (by !== 'the pool') client.release()
// V8 frees buffers in the background, which the next collection waits for. Minor collections free nothing in the old generation.
for (let n = 0; n < 3; n++) globalThis.gc({ type: 'minor' })
process.stdout.write(
  JSON.stringify({ kept: process.memoryUsage().arrayBuffers - held, sent: bytes * statements }),
)
await pool.end()
