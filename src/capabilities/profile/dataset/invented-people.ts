/**
 * People who do not exist, for installations that have no dataset yet. Names are made of
 * syllables that no language combines this way; addresses use domains and numbers reserved for examples (RFC 2606, the
 * North American 555-01xx, the British 07700 900xxx). The same people in every process.
 */

export const inventedPeopleCount = 300

/** A line of a dataset, in our own members. */
type InventedPerson = Readonly<Record<string, unknown>> & {
  readonly lid: string
  readonly urn: string
}

const firstStarts = [
  'Tal',
  'Mer',
  'Osk',
  'Vin',
  'Lor',
  'Bex',
  'Quil',
  'Zar',
  'Fen',
  'Hul',
  'Yor',
  'Dax',
  'Pell',
  'Ruv',
]
const firstEnds = [
  'vora',
  'iddo',
  'wenna',
  'axo',
  'imba',
  'otha',
  'urelle',
  'enzo',
  'yska',
  'ando',
  'iveth',
  'ummel',
]
const lastStarts = [
  'Quarn',
  'Vexel',
  'Thrum',
  'Oble',
  'Sprin',
  'Wolv',
  'Grund',
  'Tarn',
  'Plim',
  'Brax',
  'Skell',
  'Morv',
]
const lastEnds = [
  'brook',
  'dottir-Vane',
  'wick',
  'mire',
  'holt',
  'stone',
  'ovar',
  'ünder',
  'øsk',
  'field',
  'ément',
  'hatch',
]
const companyStarts = [
  'Nimbrel',
  'Ostrava Nine',
  'Plumbline',
  'Quorvex',
  'Brindlefax',
  'Tessellar',
  'Umbrio',
  'Vantelle',
]
const companyEnds = [
  'Logistics',
  'Software',
  'Instruments',
  'Foods',
  'Energy',
  'Textiles',
  'Robotics',
  'Mutual',
]
const schools = [
  'Invented University of Lower Quarn',
  'Thrumwick Institute of Technology',
  'Plimfield College of Arts',
  'Oblemire Polytechnic',
  'Graduate School of Imaginary Commerce',
]
const degrees = [
  'Bachelor of Science',
  'Master of Science',
  'Bachelor of Arts',
  'Doctor of Philosophy',
  'Diploma',
]
const titles = [
  'Software Engineer',
  'Data Analyst',
  'Head of Logistics',
  'Product Manager',
  'Accountant',
  'Mechanical Engineer',
  'Sales Director',
  'Research Scientist',
  'Nurse Practitioner',
  'Operations Lead',
]
const skills = [
  'TypeScript',
  'Negotiation',
  'SQL',
  'Public speaking',
  'Bookkeeping',
  'Welding',
  'Machine learning',
  'Project planning',
  'Event sourcing',
  'Customer research',
  'Kubernetes',
  'Editing',
]
const languages = [
  'English',
  'Deutsch',
  'Español',
  'français',
  'Portuguese',
  'Polski',
  '日本語',
  'Cantonese',
  'Hindi',
]
const places = [
  { city: 'Lisbon', state: 'Lisboa', country: 'Portugal', country_code: 'PT' },
  { city: 'Leeds', state: 'England', country: 'United Kingdom', country_code: 'GB' },
  { city: 'Leipzig', state: 'Saxony', country: 'Germany', country_code: 'DE' },
  { city: 'Toronto', state: 'Ontario', country: 'Canada', country_code: 'CA' },
  { city: 'Austin', state: 'Texas', country: 'United States', country_code: 'US' },
  { city: 'Lyon', state: 'Auvergne-Rhône-Alpes', country: 'France', country_code: 'FR' },
] as const

/** At these intervals a person is deleted, shares no contact data, or has given nothing but a name. */
const goneEvery = 60
const contactlessEvery = 4
const tersestEvery = 25

/** Deterministic: the same person for the same number. */
export function* inventedPeople(count = inventedPeopleCount): Generator<InventedPerson> {
  for (let number = 1; number <= count; number++) yield inventedPerson(number)
}

const inventedPerson = (number: number): InventedPerson => {
  const draw = draws(number)
  const firstname = draw.pick(firstStarts) + draw.pick(firstEnds)
  const lastname = draw.pick(lastStarts) + draw.pick(lastEnds)
  const lid = `${firstname}-${lastname}-${number.toString(36).padStart(3, '0')}`
    .normalize('NFC')
    .toLowerCase()
  const identity = { lid, urn: String(1_000_000_000 + number * 7_919) }
  if (number % goneEvery === 0) return { ...identity, deleted: true }
  if (number % tersestEvery === 0) return { ...identity, firstname, lastname }
  const jobs = careerOf(draw)
  const company = String(jobs[0]?.company.company_name ?? '')
  const isReachable = number % contactlessEvery !== 0
  return {
    ...identity,
    firstname,
    lastname,
    numOfConnections: draw.below(2_500),
    headline: `${jobs[0]?.title} at ${company}`,
    about: `${firstname} has been in ${draw.pick(companyEnds).toLowerCase()} for ${3 + draw.below(25)} years. An invented person.`,
    skills: draw.some(skills, 2 + draw.below(5)),
    languages: draw.some(languages, 1 + draw.below(3)).map((value) => ({ value })),
    address: draw.pick(places),
    educations: draw.some(schools, 1 + draw.below(2)).map((name) => educationOf(name, draw)),
    employment_history: jobs,
    emails: isReachable ? emailsOf(firstname, lastname, number) : [],
    phone_numbers: isReachable ? [phoneOf(number)] : [],
  }
}

const careerOf = (draw: Draws) => {
  let year = 2026 - draw.below(4)
  return Array.from({ length: 1 + draw.below(4) }, (_, index) => {
    const endYear = year
    const startYear = endYear - 1 - draw.below(5)
    year = startYear
    const name = `${draw.pick(companyStarts)} ${draw.pick(companyEnds)}`
    const place = draw.pick(places)
    return {
      title: draw.pick(titles),
      description: index === 0 ? `Responsible for ${draw.pick(skills).toLowerCase()}.` : null,
      startDate: draw.partialDate(startYear),
      endDate: index === 0 ? null : draw.partialDate(endYear),
      is_current: index === 0,
      location: `${place.city}, ${place.country}`,
      company: {
        lid: name.toLowerCase().replaceAll(' ', '-'),
        company_name: name,
        urn: `urn:profnet:organization:${5_000 + draw.below(4_000)}`,
      },
    }
  })
}

const educationOf = (name: string, draw: Draws) => {
  const startYear = 1988 + draw.below(25)
  return {
    urn: `urn:profnet:school:${700 + schools.indexOf(name)}`,
    name,
    degree: draw.pick(degrees),
    startDate: String(startYear),
    endDate: draw.partialDate(startYear + 3),
  }
}

const emailsOf = (firstname: string, lastname: string, number: number) => {
  // Addresses are in ASCII, and numbered: two people may share a name.
  const ascii = (text: string) =>
    text
      .toLowerCase()
      .replaceAll('ø', 'o')
      .normalize('NFD')
      .replaceAll(/[^a-z-]/g, '')
  const local = `${ascii(firstname)}.${ascii(lastname)}.${number}`
  const work = { value: `${local}@example.com`, sub_type: 'PROFESSIONAL' }
  return number % 3 === 0 ? [work, { value: `${local}@example.org`, sub_type: 'PERSONAL' }] : [work]
}

const phoneOf = (number: number) =>
  number % 2 === 0
    ? { value: `+1202555${String(100 + (number % 100)).padStart(4, '0')}`, sub_type: 'WORK' }
    : { value: `+447700900${String(number % 1_000).padStart(3, '0')}`, sub_type: 'MOBILE' }

type Draws = ReturnType<typeof draws>

/** Numbers that look random but depend only on the seed. */
const draws = (seed: number) => {
  let state = Math.imul(seed, 0x9e3779b1) | 0
  const below = (limit: number): number => {
    state = Math.imul(state ^ (state >>> 15), 0x2c1b3c6d)
    state = Math.imul(state ^ (state >>> 12), 0x297a2d39) + 0x6d2b79f5
    state ^= state >>> 15
    return (state >>> 0) % limit
  }
  const pick = <Item>(items: readonly [Item, ...Item[]] | readonly Item[]): Item => {
    const item = items[below(items.length)]
    if (item === undefined) throw new Error('nothing to pick from')
    return item
  }
  return {
    below,
    pick,
    some: <Item>(items: readonly Item[], count: number): Item[] => [
      ...new Set(Array.from({ length: count }, () => pick(items))),
    ],
    /** To the year, the month or the day, as people write dates. */
    partialDate: (year: number): string => {
      const month = String(1 + below(12)).padStart(2, '0')
      const day = String(1 + below(28)).padStart(2, '0')
      return pick([`${year}`, `${year}-${month}`, `${year}-${month}`, `${year}-${month}-${day}`])
    },
  }
}
