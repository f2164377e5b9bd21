import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { UsersClient } from '@eventstore/db-client/generated/users_grpc_pb.js'
import usersGrpc from '@eventstore/db-client/generated/users_grpc_pb.js'
import type { DetailsResp } from '@eventstore/db-client/generated/users_pb.js'
import usersPb from '@eventstore/db-client/generated/users_pb.js'
import type { CallOptions, Metadata, ServiceError } from '@grpc/grpc-js'
import type { Logger } from 'pino'
import { appendUntilKnown } from '../append-until-known.ts'
import { StreamMissing, Unavailable } from '../port.ts'
import { createAppender } from './append.ts'
import { checkUrl, connect, connectTo } from './client.ts'
import { readEvents, readHead } from './read.ts'

/**
 * Creates the service's user, and grants it the rights to read all events and to read and write streams, but not to delete streams or
 * change their settings. An administrator runs this once, and again to change the password.
 */

const timeoutMs = 10_000
const settingsStream = '$settings'
const notFound = 5
/** How long the server can take to apply new rights. */
const effectMs = 5_000
const effectPauseMs = 100

type Preparation = {
  readonly adminUrl: string
  readonly user: string
  readonly password: string
  /** Whether other software also uses this server. If so, rights that everyone has are not restricted. */
  readonly shared: boolean
  readonly logger: Logger
}

type Prepared = {
  readonly created: boolean
  readonly settingsChanged: boolean
  readonly settings: Settings
}

type Roles = string | readonly string[]
type Acl = { readonly [role: string]: Roles }
type Settings = { readonly $userStreamAcl?: Acl; readonly $systemStreamAcl?: Acl }

/** Creates the user, grants its rights and tests them. Can be repeated. Throws if the server refuses a request. */
export const prepareEventStoreDb = async (preparation: Preparation): Promise<Prepared> => {
  const { adminUrl, user, password } = preparation
  checkUrl(adminUrl)
  const created = await makeUser(preparation)
  const changed = await giveRights(preparation)
  await tried(urlFor(adminUrl, user, password))
  return { created, ...changed }
}

/** Replaces the user and password in a connection string. */
export const urlFor = (url: string, user: string, password: string): string =>
  url.trim().replace(/^([^:/]+:\/\/)(.*@)?/, `$1${encodeURIComponent(user)}:${encodeURIComponent(password)}@`)

const never = new AbortController().signal

const makeUser = async ({ adminUrl: url, user, password }: Preparation): Promise<boolean> => {
  const { stub, callOptions } = await connectTo(usersGrpc.UsersClient, {
    url,
    role: 'users',
    timeoutMs,
    signal: never,
  })
  const inTime = (): [Metadata, CallOptions] => callOptions(Date.now() + timeoutMs)
  try {
    const known = await detailsOf(stub, user, inTime())
    if (known === null) {
      const options = new usersPb.CreateReq.Options()
      options.setLoginName(user).setPassword(password).setFullName('enrichment service')
      const request = new usersPb.CreateReq().setOptions(options)
      await settled((answer) => stub.create(request, ...inTime(), answer))
      return true
    }
    if (known.getGroupsList().length > 0)
      throw new Error(
        `the user "${user}" is in the group ${known.getGroupsList().join(', ')}, but the service needs its own user in no group. Choose another name`,
      )
    const reset = new usersPb.ResetPasswordReq.Options().setLoginName(user).setNewPassword(password)
    await settled((answer) =>
      stub.resetPassword(new usersPb.ResetPasswordReq().setOptions(reset), ...inTime(), answer),
    )
    if (known.getDisabled()) {
      const enable = new usersPb.EnableReq().setOptions(new usersPb.EnableReq.Options().setLoginName(user))
      await settled((answer) => stub.enable(enable, ...inTime(), answer))
    }
    return false
  } finally {
    stub.close()
  }
}

const settled = (ask: (answer: (error: ServiceError | null) => void) => unknown): Promise<void> =>
  new Promise((resolve, reject) => {
    ask((error) => (error === null ? resolve() : reject(refused(error))))
  })

const refused = (error: Error): Unavailable =>
  new Unavailable(`the event store refuses the request: ${error.message}`, { cause: error })

const detailsOf = (
  stub: UsersClient,
  user: string,
  options: [Metadata, CallOptions],
): Promise<DetailsResp.UserDetails | null> =>
  new Promise((resolve, reject) => {
    const request = new usersPb.DetailsReq().setOptions(new usersPb.DetailsReq.Options().setLoginName(user))
    const call = stub.details(request, ...options)
    let found: DetailsResp.UserDetails | null = null
    call.on('data', (response: DetailsResp) => {
      found = response.getUserDetails() ?? null
    })
    call.on('error', (error: ServiceError) =>
      error.code === notFound ? resolve(null) : reject(refused(error)),
    )
    call.on('end', () => resolve(found))
  })

const giveRights = async ({
  adminUrl: url,
  user,
  shared,
  logger,
}: Preparation): Promise<Pick<Prepared, 'settings' | 'settingsChanged'>> => {
  const connection = await connect({ url, role: 'read', timeoutMs, signal: never })
  const appender = createAppender({
    connect: () => connect({ url, role: 'append', timeoutMs, signal: never }),
    lastRevision: async () => -1,
    checkLog: async () => undefined,
    deadlineMs: timeoutMs,
    logger,
  })
  try {
    const read = { stream: settingsStream, direction: 'backwards', from: undefined, max: 1 } as const
    const [last] = await readEvents(connection, read, timeoutMs).catch((error: unknown) => {
      if (error instanceof StreamMissing) return []
      throw error
    })
    const before = last === undefined ? {} : (JSON.parse(last.data) as Settings)
    const settings = settingsFor(before, { user, shared })
    const data = JSON.stringify(settings)
    const settingsChanged = data !== JSON.stringify(before)
    if (settingsChanged)
      await appendUntilKnown(appender, settingsStream, last?.revision ?? 'none', [
        { id: randomUUID(), type: 'update-default-acl', data, metadata: '{}' },
      ])
    return { settings, settingsChanged }
  } finally {
    connection.close()
    await appender.close()
  }
}

/**
 * Adds the user to the current `$settings`. Users who are listed there keep their rights. A right without a list of users belongs to
 * everyone. On a server that is not shared, such rights are restricted to the new user, and deleting streams to administrators.
 */
export const settingsFor = (
  before: Settings,
  { user, shared }: { user: string; shared: boolean },
): Settings => {
  const streams = before.$userStreamAcl ?? {}
  const open = (role: string): Acl => (shared || streams[role] !== undefined ? {} : { [role]: '$admins' })
  const given = (role: string): Acl => {
    const roles = streams[role]
    if (roles === undefined && shared) return {}
    return { [role]: withUser(roles ?? [], user) }
  }
  const $userStreamAcl = {
    ...streams,
    ...given('$r'),
    ...given('$w'),
    ...given('$mr'),
    ...open('$d'),
    ...open('$mw'),
  }
  return {
    ...before,
    ...(Object.keys($userStreamAcl).length === 0 ? {} : { $userStreamAcl }),
    $systemStreamAcl: {
      ...before.$systemStreamAcl,
      $r: withUser(before.$systemStreamAcl?.$r ?? ['$admins'], user),
    },
  }
}

const withUser = (roles: Roles, user: string): Roles => {
  const named = [roles].flat()
  return named.includes(user) || named.includes('$all') ? roles : [...named, user]
}

/** Reads events as the new user, because the service cannot start without the right to read all events. */
const tried = async (url: string): Promise<void> => {
  const deadline = performance.now() + effectMs
  for (;;) {
    const connection = await connect({ url, role: 'read', timeoutMs, signal: never })
    try {
      await readHead(connection, timeoutMs)
      return
    } catch (error) {
      if (performance.now() > deadline) throw error
      await sleep(effectPauseMs)
    } finally {
      connection.close()
    }
  }
}
