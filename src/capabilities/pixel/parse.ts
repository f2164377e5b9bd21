import { missingParameter, type Refusal, wrongParameter } from '../../call/errors.ts'
import { type PixelPeriod, pixelPeriod } from '../../events/pixel.ts'
import { parseDomain, parseHost, urlCharactersMax } from './domain.ts'

/** Parses the bodies of the pixel controls. The refusal names the first missing or wrong parameter. */

type Parsed<Input> = { readonly input: Input } | { readonly refusal: Refusal }
type Body = Readonly<Record<string, unknown>>

const numberMax = 1_000_000_000
const hitIdCharactersMax = 128

export type DomainInput = { readonly domain: string }
export type PeriodInput = DomainInput & { readonly period: PixelPeriod }
export type LimitInput = PeriodInput & { readonly number: number }
export type HitInput = { readonly host: string; readonly hitId: string | null }

export const parseDomainOnly = (body: Body): Parsed<DomainInput> => {
  if (absent(body.domain)) return { refusal: missingParameter('domain', 'string') }
  const domain = typeof body.domain === 'string' ? parseDomain(body.domain) : null
  if (domain === null)
    return {
      refusal: wrongParameter(
        'domain',
        'a registrable domain or a subdomain, such as "example.com": no scheme, port, path, wildcard or IP address',
      ),
    }
  return { input: { domain } }
}

export const parsePeriod = (body: Body): Parsed<PeriodInput> => {
  const parsed = parseDomainOnly(body)
  if ('refusal' in parsed) return parsed
  if (absent(body.period)) return { refusal: missingParameter('period', 'string') }
  const { success, data: period } = pixelPeriod.safeParse(body.period)
  return success
    ? { input: { ...parsed.input, period } }
    : { refusal: wrongParameter('period', '"day" or "month"') }
}

export const parseLimit = (body: Body): Parsed<LimitInput> => {
  const parsed = parsePeriod(body)
  if ('refusal' in parsed) return parsed
  const { number } = body
  if (absent(number)) return { refusal: missingParameter('number', 'number') }
  // The number must be at least 1, because a block allows no hits.
  return typeof number === 'number' && Number.isInteger(number) && number >= 1 && number <= numberMax
    ? { input: { ...parsed.input, number } }
    : { refusal: wrongParameter('number', `a whole number from 1 to ${numberMax}`) }
}

export const parseHit = ({ url, hit_id: hitId }: Body): Parsed<HitInput> => {
  if (absent(url)) return { refusal: missingParameter('url', 'string') }
  const host = typeof url === 'string' ? parseHost(url) : null
  if (host === null)
    return {
      refusal: wrongParameter(
        'url',
        `an absolute http or https URL of at most ${urlCharactersMax} characters`,
      ),
    }
  if (hitId === undefined || hitId === null) return { input: { host, hitId: null } }
  return typeof hitId === 'string' && hitId.length >= 1 && hitId.length <= hitIdCharactersMax
    ? { input: { host, hitId } }
    : { refusal: wrongParameter('hit_id', `a string of 1 to ${hitIdCharactersMax} characters`) }
}

const absent = (value: unknown): value is undefined | null => value === undefined || value === null
