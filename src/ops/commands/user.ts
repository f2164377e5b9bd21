import { randomBytes } from 'node:crypto'
import { type Command, UsageError } from '../command.ts'
import { putUser } from '../users.ts'

const nameMax = 64

export const userCommands: readonly Command[] = [
  {
    name: 'user create',
    summary: 'create a dashboard user, or give an existing one a new password; it is shown once, here',
    parameters: [{ name: 'name', help: 'such as ada', required: true }],
    run: async ({ foundation }, given) => {
      const name = given.required('name').trim()
      if (name === '' || name.length > nameMax || /\p{Cc}/u.test(name))
        throw new UsageError(`--name: 1 to ${nameMax} characters, none of them a control`)
      const password = randomBytes(15).toString('base64url')
      await putUser((await foundation()).pool, { name, password })
      return { json: { user: name, password } }
    },
  },
]
