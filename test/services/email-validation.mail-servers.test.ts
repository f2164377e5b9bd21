import { afterAll, beforeAll, test } from 'vitest'
import { type MailHosts, startMailHosts } from './mail/mail-hosts.ts'
import { openValidation, type Validation } from './mail/validation.ts'

let hosts: MailHosts
let validation: Validation
beforeAll(async () => {
  hosts = await startMailHosts()
  validation = await openValidation(hosts)
}, 60_000)
afterAll(async () => {
  await validation?.close()
  await hosts?.close()
})
test('explore', async () => {
  const names = ['postfix','second','answering','greylisting','greylisting-all','blocking','strict-helo','strict-sender','tarpit','slow-greeting','tls-only','tls-impossible','tls-broken','ascii','no-pipelining','postscreen','postscreen-deep','catch-all','foreign','null-mx','implicit','alias','mx-is-alias','first-down','all-down','no-mail','dangling','literal','local','many','exim','exim-catch-all','exim-foreign','refused','silent','bogus','dead','nxdomain']
  const more = ['nobody@postfix','full@answering','full-for-good@answering','disabled@answering','jörg@postfix','jürg@postfix','known@ascii','jörg@ascii','full@exim','nobody@exim','jörg@exim','nobody@tls-only','nobody@no-pipelining','jörg@catch-all']
  const all = [...names.map(n=>`known@${n}`), ...more]
  const out = await Promise.all(all.map(async (a) => [a, JSON.stringify(await validation.ask(`${a}.example.net`))].join(' ')))
  console.log(out.join('\n'))
  const odd = await openValidation({...hosts, helo:'no-such-host.example.net', mailFrom:'x@no-such-host.example.net'})
  for (const n of ['strict-helo','strict-sender','postscreen','postscreen-deep','foreign']) console.log(n, JSON.stringify(await odd.ask(`known@${n}.example.net`)))
 await odd.close()
  console.log((await hosts.postfix.log()).split('\n').filter(l=>/screen|strict|warn|error|fatal|panic/.test(l)).join('\n'))
  console.log(await hosts.exim.log())
}, 60_000)
