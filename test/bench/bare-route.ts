import { continents, countries } from 'countries-list'
import fastify from 'fastify'
import maxmind, { type Response } from 'maxmind'
import { monotonicFactory, ulid } from 'ulid'
import { bundledGeoPaths } from '../../src/capabilities/ip-lookup/geo-database.ts'

/**
 * The baseline for `call`: the same answer from Fastify and maxmind as in their documentation, without API key, limit, price or
 * record. The route runs in a separate process, which prints its address.
 */

type FlatRecord = {
  country_code: keyof typeof countries
  state1: string
  city: string
  latitude: number
  longitude: number
}

const reader = await maxmind.open<Response & FlatRecord>(bundledGeoPaths()[0] ?? '')
// On every call `ulid()` looks for a source of randomness and draws each character separately. Here that takes 23 us, two thirds
// of the rest of the route. `--bare-ulid` shows the difference.
const requestId = process.argv.includes('--bare-ulid') ? ulid : monotonicFactory()
const app = fastify({ logger: false })

app.post<{ Body: { ip: string } }>('/v1/ip/lookup', (request, reply) => {
  const startedMs = performance.now()
  const { ip } = request.body
  const found = reader.get(ip)
  const country = found === null ? undefined : countries[found.country_code]
  reply.send({
    result: {
      ip,
      success: found !== null,
      type: 'IPv4',
      continent: country === undefined ? null : continents[country.continent],
      continent_code: country?.continent ?? null,
      country: country?.name ?? null,
      country_code: found?.country_code ?? null,
      region: found?.state1 || null,
      region_code: null,
      city: found?.city || null,
      latitude: found?.latitude ?? null,
      longitude: found?.longitude ?? null,
      postal: null,
      is_eu: false,
      calling_code: country === undefined ? null : String(country.phone[0]),
    },
    processing_time_ms: performance.now() - startedMs,
    request_id: requestId(),
  })
})

process.stdout.write(`API        ${await app.listen({ host: '127.0.0.1', port: 0 })}\n`)
process.on('SIGTERM', () => process.exit(0))
