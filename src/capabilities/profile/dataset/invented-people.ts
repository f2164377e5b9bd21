/**
 * Invented people for installations without a data set. Their names belong to no language. Their contact data uses domains and numbers
 * reserved for examples (RFC 2606, the North American 555-01xx, the British 07700 900xxx).
 */

export const inventedPeopleCount = 300

type InventedPerson = Readonly<Record<string, unknown>> & {
  readonly lid: string
  readonly urn: string
}

const firstnames = ['Vinaxo', 'Hulvora', 'Talwenna', 'Osküra', 'Lorimba', 'Bexotha', 'Quilenzo']
const lastnames = ['Braxstone', 'Tarnstone', 'Quarnwick', 'Vexelmire', 'Grundøsk', 'Morvément']
const companies = ['Nimbrel Logistics', 'Plumbline Software', 'Quorvex Instruments', 'Tessellar Energy']
const titles = ['Software Engineer', 'Data Analyst', 'Head of Logistics', 'Accountant', 'Sales Director']
const skills = ['TypeScript', 'Negotiation', 'SQL', 'Public speaking', 'Bookkeeping', 'Welding']
const languages = ['English', 'Deutsch', 'Español', 'Polski', '日本語']
const places = [
  { city: 'Lisbon', state: 'Lisboa', country: 'Portugal', country_code: 'PT' },
  { city: 'Leeds', state: 'England', country: 'United Kingdom', country_code: 'GB' },
  { city: 'Toronto', state: 'Ontario', country: 'Canada', country_code: 'CA' },
]

/** One person in `goneEvery` is deleted, one in `contactlessEvery` shares no contact data, and one in `tersestEvery` has only a name. */
const goneEvery = 60
const contactlessEvery = 4
const tersestEvery = 25

/** Returns the same people in every process. */
export function* inventedPeople(count = inventedPeopleCount): Generator<InventedPerson> {
  for (let number = 1; number <= count; number++) yield inventedPerson(number)
}

const inventedPerson = (number: number): InventedPerson => {
  const firstname = pick(firstnames, number - 1)
  const lastname = pick(lastnames, number - 1)
  const lid = `${firstname}-${lastname}-${number.toString(36).padStart(3, '0')}`.toLowerCase()
  const identity = { lid, urn: String(1_000_000_000 + number * 7_919) }
  if (number % goneEvery === 0) return { ...identity, deleted: true }
  if (number % tersestEvery === 0) return { ...identity, firstname, lastname }
  const jobs = [jobOf(number, 2026 - (number % 4)), jobOf(number + 1, 2020 - (number % 4))]
  const isReachable = number % contactlessEvery !== 0
  return {
    ...identity,
    firstname,
    lastname,
    numOfConnections: (number * 37) % 2_500,
    headline: `${pick(titles, number)} at ${pick(companies, number)}`,
    about: 'An invented person.',
    skills: [pick(skills, number), pick(skills, number + 1), pick(skills, number + 2)],
    languages: [{ value: pick(languages, number) }],
    address: pick(places, number),
    educations: [
      {
        urn: 'urn:profnet:school:700',
        name: 'Invented University of Lower Quarn',
        degree: 'Bachelor of Science',
        startDate: String(1990 + (number % 20)),
        endDate: `${1994 + (number % 20)}-06`,
      },
    ],
    employment_history: jobs,
    emails: isReachable ? [{ value: `person-${number}@example.com`, sub_type: 'PROFESSIONAL' }] : [],
    phone_numbers: isReachable ? [phoneOf(number)] : [],
  }
}

const jobOf = (number: number, startYear: number) => {
  const name = pick(companies, number)
  const place = pick(places, number)
  const isCurrent = startYear > 2020
  return {
    title: pick(titles, number),
    description: isCurrent ? 'Responsible for examples.' : null,
    startDate: `${startYear}-0${1 + (number % 9)}`,
    endDate: isCurrent ? null : String(startYear + 3),
    is_current: isCurrent,
    location: `${place.city}, ${place.country}`,
    company: {
      lid: name.toLowerCase().replaceAll(' ', '-'),
      company_name: name,
      urn: `urn:profnet:organization:${5_000 + (number % companies.length)}`,
    },
  }
}

const phoneOf = (number: number) =>
  number % 2 === 0
    ? { value: `+1202555${String(100 + (number % 100)).padStart(4, '0')}`, sub_type: 'WORK' }
    : { value: `+447700900${String(number % 1_000).padStart(3, '0')}`, sub_type: 'MOBILE' }

const pick = <Item>(items: readonly Item[], number: number): Item => {
  const item = items[number % items.length]
  if (item === undefined) throw new Error('nothing to pick from')
  return item
}
