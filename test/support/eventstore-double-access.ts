/** The users of the EventStoreDB double and their rights. It follows the server's rules for `$settings`, as far as we use them. */
import usersGrpc from '@eventstore/db-client/generated/users_grpc_pb.js'
import type {
  CreateReq,
  DetailsReq,
  EnableReq,
  ResetPasswordReq,
} from '@eventstore/db-client/generated/users_pb.js'
import usersPb from '@eventstore/db-client/generated/users_pb.js'
import type { handleUnaryCall, Metadata, Server, ServerWritableStream } from '@grpc/grpc-js'

/** The gRPC status codes that the double uses. */
export const permissionDenied = 7
export const unauthenticated = 16
const notFound = 5

type Role = '$r' | '$w'
export type User = { password: string; readonly groups: readonly string[]; disabled: boolean }

export type Users = readonly (readonly [name: string, user: User])[]

export type Access = {
  /** The gRPC code of a refusal, or undefined if the caller is allowed. */
  refusal(metadata: Metadata, stream: string, role: Role): number | undefined
  addTo(server: Server): void
}

export const createAccess = ({
  adminPassword,
  settings,
  users: known = [],
  keepUsers = () => undefined,
}: {
  readonly adminPassword: string
  readonly settings: () => string | undefined
  readonly users?: Users
  readonly keepUsers?: (users: Users) => void
}): Access => {
  const users = new Map<string, User>([
    ['admin', { password: adminPassword, groups: ['$admins'], disabled: false }],
    ...known,
  ])

  const caller = (metadata: Metadata): { name: string; groups: readonly string[] } | undefined => {
    const [basic] = metadata.get('authorization')
    const given = Buffer.from(String(basic ?? '').replace('Basic ', ''), 'base64').toString()
    const colon = given.indexOf(':')
    const [name, password] = [given.slice(0, colon), given.slice(colon + 1)]
    const user = users.get(name)
    if (user === undefined || user.disabled || user.password !== password) return undefined
    return { name, groups: user.groups }
  }

  const refusal: Access['refusal'] = (metadata, stream, role) => {
    const user = caller(metadata)
    if (user === undefined) return unauthenticated
    if (user.groups.includes('$admins')) return undefined
    const system = stream.startsWith('$')
    const acls: Record<string, Partial<Record<Role, string | string[]>>> = JSON.parse(settings() ?? '{}')
    const roles =
      acls[system ? '$systemStreamAcl' : '$userStreamAcl']?.[role] ?? (system ? '$admins' : '$all')
    const allowed = [roles].flat()
    return allowed.includes('$all') || allowed.includes(user.name) ? undefined : permissionDenied
  }

  const managed =
    <Request, Response>(
      act: (request: Request) => Response | undefined,
    ): handleUnaryCall<Request, Response> =>
    (call, answer) => {
      const code = refusal(call.metadata, '$users', '$w')
      if (code !== undefined) return answer({ code, details: 'Access Denied' })
      const response = act(call.request)
      if (response === undefined) return answer({ code: notFound, details: 'User was not found' })
      keepUsers([...users])
      answer(null, response)
    }

  const addTo = (server: Server): void =>
    server.addService(usersGrpc.UsersService, {
      create: managed((request: CreateReq) => {
        const options = request.getOptions()
        users.set(options?.getLoginName() ?? '', {
          password: options?.getPassword() ?? '',
          groups: options?.getGroupsList() ?? [],
          disabled: false,
        })
        return new usersPb.CreateResp()
      }),
      resetPassword: managed((request: ResetPasswordReq) => {
        const user = users.get(request.getOptions()?.getLoginName() ?? '')
        if (user === undefined) return undefined
        user.password = request.getOptions()?.getNewPassword() ?? ''
        return new usersPb.ResetPasswordResp()
      }),
      enable: managed((request: EnableReq) => {
        const user = users.get(request.getOptions()?.getLoginName() ?? '')
        if (user === undefined) return undefined
        user.disabled = false
        return new usersPb.EnableResp()
      }),
      details: (call: ServerWritableStream<DetailsReq, InstanceType<typeof usersPb.DetailsResp>>) => {
        const name = call.request.getOptions()?.getLoginName() ?? ''
        const user = users.get(name)
        const code = refusal(call.metadata, '$users', '$r') ?? (user === undefined ? notFound : undefined)
        if (code !== undefined || user === undefined)
          return call.emit('error', { code: code ?? notFound, details: 'refused' })
        const details = new usersPb.DetailsResp.UserDetails()
        details.setLoginName(name)
        details.setGroupsList([...user.groups])
        details.setDisabled(user.disabled)
        const response = new usersPb.DetailsResp()
        response.setUserDetails(details)
        call.write(response)
        call.end()
      },
    })
  return { refusal, addTo }
}
