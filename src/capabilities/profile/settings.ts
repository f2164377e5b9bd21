import { createIdentifiers, type Identifiers } from './identifier.ts'

export type ProfileSettings = {
  readonly PROFILE_PROVIDER: 'dataset' | 'http'
  readonly PROFILE_HTTP_URL?: string | undefined
  readonly PROFILE_HTTP_KEY?: string | undefined
  /** The path of a JSON file; see `mapping/declared.ts`. */
  readonly PROFILE_HTTP_MAPPING?: string | undefined
  readonly PROFILE_HTTP_TIMEOUT_MS: number
  readonly PROFILE_FETCHES_MAX: number
  readonly PROFILE_DOMAIN?: string | undefined
  readonly PROFILE_URN_PREFIX?: string | undefined
}

/** Applies the settings for accepted identifiers and for the form of profile URLs. */
export const identifiersOf = ({ PROFILE_DOMAIN, PROFILE_URN_PREFIX }: ProfileSettings): Identifiers =>
  createIdentifiers({ domain: PROFILE_DOMAIN ?? null, urnPrefix: PROFILE_URN_PREFIX ?? null })
