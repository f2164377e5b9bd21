/** In this partner's program, the compiler checks every path, member and code. */
import createClient from 'openapi-fetch'
import type { paths } from './enrichment.ts'

export const program = async (baseUrl: string, apiKey: string) => {
  const client = createClient<paths>({ baseUrl, headers: { 'x-api-key': apiKey } })

  const validated = await client.POST('/v1/email/validate', {
    body: { email: 'greylisted@mail.test' },
    params: { header: { 'Idempotency-Key': 'signup-17' } },
  })
  const status: 'valid' | 'invalid' | 'risky' | 'unknown' | undefined = validated.data?.result.status
  const retryAfter: number | null | undefined = validated.data?.result.retry_after

  const refused = await client.POST('/v1/ip/lookup', { body: { ip: '8.8.8' } })
  const code = refused.error?.code

  const looked = await client.POST('/v1/profnet/profile', { body: { id: 'test-person' } })
  const job = looked.data?.result.employment_history[0]?.company?.company_name

  const asked = await client.GET('/whoami')
  const keyId: string | undefined = asked.data?.api_key_id

  const requestId = looked.data?.request_id ?? ''
  const call = await client.GET('/v1/calls/{request_id}', { params: { path: { request_id: requestId } } })

  // @ts-expect-error the path does not exist
  const nowhere = await client.GET('/v1/nowhere')
  // @ts-expect-error the member has another name
  const misspelt = await client.POST('/v1/email/validate', { body: { mail: 'x' } })
  // @ts-expect-error the result does not have this member
  const absent = validated.data?.result.verdict
  // @ts-expect-error this call never answers with this code
  const neverAnswered = code === 'PROFNET_001'

  return {
    status,
    retryAfter,
    code,
    job,
    keyId,
    charged: call.data?.result.cost.charged,
    nowhere: nowhere.response.status,
    misspelt: misspelt.response.status,
    absent,
    neverAnswered,
  }
}
