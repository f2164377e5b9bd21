/** The event log's table is moved to another disk, as in the scaling guide, while calls continue. */
import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { afterEach, expect, test } from 'vitest'
import { verifyLog } from '../../../src/event-log/verify/verify-log.ts'
import { openTreeScene, type TreeScene } from '../tree/tree-scene.ts'

let scene: TreeScene
afterEach(() => scene.close())

/** The guide's statements, with another name for the tablespace and with the server's own directory. */
const statementsOfGuide = async (name: string): Promise<string[]> => {
  const guide = await readFile('src/guides/scaling.md', 'utf8')
  const [, section = ''] = guide.split('\n## How do I move the event log to another disk?\n')
  const [, sql = ''] = section.split('```sql\n')
  return (sql.split('```')[0] ?? '')
    .split('\n')
    .map((line) => line.replace(/--.*/, '').trim())
    .filter((line) => line !== '')
    .map((line) => line.replaceAll('large', name).replace(/location '[^']*'/, `location ''`))
}

test('a moved log is intact with a checkpoint from before the move, and appends that waited are written', async () => {
  scene = await openTreeScene('postgres')
  const { pool } = scene
  await scene.write(2_000)
  const { note } = await scene.checkpoints().make()
  const name = `large_${randomBytes(4).toString('hex')}`
  const statements = await statementsOfGuide(name)
  expect(statements.map((statement) => statement.split(' ').slice(0, 3).join(' '))).toEqual([
    `create tablespace ${name}`,
    'alter table log_segments',
    'alter table log_tree_tiles',
  ])
  const client = await pool.connect()
  try {
    await client.query('set allow_in_place_tablespaces = on')
    const writing = Array.from({ length: 20 }, (_, n) => scene.write(1, `pricebook-${n}`))
    for (const statement of statements) await client.query(statement)
    await Promise.all(writing)
    const { rows } = await client.query<{ relname: string; moved: boolean }>(
      `select c.relname, coalesce(t.spcname = $1, false) as moved from pg_class c left join pg_tablespace t on t.oid = c.reltablespace
        where c.relname in ('log_segments', 'log_segments_pkey', 'log_stream_marks')
           or c.oid = (select reltoastrelid from pg_class where relname = 'log_segments') order by 1`,
      [name],
    )
    expect(rows.map(({ relname, moved }) => [relname.replace(/\d+/, 'of the log'), moved])).toEqual([
      ['log_segments', true],
      ['log_segments_pkey', false],
      ['log_stream_marks', false],
      ['pg_toast_of the log', true],
    ])
    await scene.write(100)
    await scene.checkpoints().make()
    const verdict = await verifyLog(scene, { against: note })
    // The count includes two checkpoints, and the announcements of the key and the tree.
    expect(verdict).toMatchObject({ events: 2_124, faults: [] })
    await client.query('alter table log_segments set tablespace pg_default')
    await client.query('alter table log_tree_tiles set tablespace pg_default')
    await client.query(`drop tablespace ${name}`)
    expect(await verifyLog(scene, { against: note })).toMatchObject({ faults: [] })
  } finally {
    client.release()
  }
})
