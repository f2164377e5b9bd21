import type { Rehearsal } from '../../call/form.ts'
import { noData, type ProfileRequest } from './contract.ts'
import type { ProfileFindings } from './decide.ts'
import type { Identifiers } from './identifier.ts'
import type { Retrieved } from './record/retrieved.ts'
import type { ProfileData } from './sources/provider.ts'

/** The answers that test keys get (src/guides/testing.md, "Which profile id gets which answer?"). All people in them are invented. */

const prefix = 'test-'
const numericId = '1'
/** No person has this id, because an id contains the time of its creation, and the time in this id is in 1970. */
const subjectId = 'sub_00000000000000000000000000'
const slowMs = 3_000
const cachedAgeMs = 5 * 3_600_000
const retryAfterSeconds = 5

const person: ProfileData = {
  firstname: 'Tessa',
  lastname: 'Testwood',
  numOfConnections: 500,
  headline: 'Head of Examples at Example Works',
  about: 'Invented for tests.',
  skills: ['Testing', 'Documentation'],
  languages: [
    { value: 'English', norm: 'en' },
    { value: 'French', norm: 'fr' },
  ],
  address: {
    street: null,
    city: 'Luxembourg',
    state: 'Luxembourg',
    postal_code: 'L-1118',
    country: 'Luxembourg',
    country_code: 'LU',
  },
  educations: [
    {
      urn: 'urn:profnet:school:1',
      name: 'Example University',
      degree: 'MSc',
      startDate: '2009-09',
      endDate: '2014-06',
    },
  ],
  employment_history: [
    {
      title: 'Head of Examples',
      description: 'Makes examples.',
      startDate: '2019-05-01',
      endDate: null,
      location: 'Luxembourg',
      is_current: true,
      company: { lid: 'test-company', company_name: 'Example Works', urn: 'urn:profnet:company:1' },
    },
    {
      title: 'Tester',
      description: null,
      startDate: '2014',
      endDate: '2019',
      location: null,
      is_current: false,
      company: { lid: null, company_name: 'Sample & Co', urn: null },
    },
  ],
  emails: [{ value: 'tessa@mail.test', sub_type: 'PROFESSIONAL' }],
  phone_numbers: [{ value: '+352000000', sub_type: 'WORK' }],
}

/** A person with a name only: every optional member is null, and lists are empty. */
const hardlyKnown: ProfileData = { ...noData, firstname: 'Min' }

/** Error codes are handled earlier, in `call/rehearsal.ts`. */
const wordOf = ({ ref }: ProfileRequest): string | null => {
  if (ref.kind === 'urn') return ref.value === numericId ? 'person' : null
  return ref.value.startsWith(prefix) ? ref.value.slice(prefix.length) : null
}

const found = (word: string, cached: boolean, data: ProfileData): Retrieved => ({
  kind: 'found',
  ...(cached ? { source: 'cached', ageMs: cachedAgeMs } : { source: 'fresh', ageMs: 0 }),
  subjectId,
  ids: { lid: `${prefix}${word}`, urn: numericId },
  data,
})

const retrieved = async (word: string | null, cached: boolean): Promise<Retrieved> => {
  switch (word) {
    case 'person':
      return found(word, cached, person)
    case 'minimal':
      return found(word, cached, hardlyKnown)
    case 'uncached':
      return found(word, false, person)
    case 'slow':
      await new Promise((resolve) => setTimeout(resolve, slowMs))
      return found(word, false, person)
    case 'deleted':
      return { kind: 'deleted', subjectId, ageMs: 0 }
    case 'unavailable':
      return { kind: 'unavailable', retryAfterSeconds }
    default:
      return { kind: 'missing' }
  }
}

export const rehearsal = ({
  urlOf,
}: Pick<Identifiers, 'urlOf'>): Rehearsal<ProfileRequest, ProfileFindings> => ({
  asked: wordOf,
  gather: async ({ cached }, { word }) => ({ retrieved: await retrieved(word, cached), urlOf }),
})
