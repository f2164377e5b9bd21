import { iso31662 } from 'iso-3166'
import { describe, expect, it } from 'vitest'
import { cldrRegionNames } from '../../src/capabilities/ip-lookup/region-codes.ts'
import { regionCode } from '../../src/capabilities/ip-lookup/regions.ts'

describe('region codes', () => {
  it.each([
    ['US', 'California', 'CA'],
    ['US', 'District of Columbia', 'DC'],
    ['FR', 'Île-de-France', 'IDF'],
    ['DE', 'Bavaria', 'BY'],
    ['DE', 'State of Berlin', 'BE'],
    ['BR', 'Sao Paulo', 'SP'],
    ['PL', 'Lodz Voivodeship', '10'],
    ['VN', 'Da Nang City', 'DN'],
    ['CH', 'St. Gallen', 'SG'],
    ['KR', 'Gangwon-do', '42'],
    ['IT', 'Trentino-Alto Adige', '32'],
    ['IR', 'Tehran', '23'],
    ['MA', 'Oriental', '02'],
  ])('%s, %s is %s', (country, name, code) => {
    expect(regionCode(country, name)).toBe(code)
  })

  it.each([
    ['ES', 'Murcia', 'MC', 'the community, not the province in it'],
    ['AR', 'Buenos Aires', 'B', 'the province'],
    ['AR', 'Buenos Aires F.D.', 'C', 'the city'],
    ['CZ', 'Plzen Region', '32', 'the region, not the district'],
    ['MX', 'Mexico City', 'CMX', 'not the state of Mexico'],
    ['RU', 'Moscow', 'MOW', 'the city'],
    ['RU', 'Moscow Oblast', 'MOS', 'the oblast'],
    ['RU', 'Altay Kray', 'ALT', 'the kray'],
    ['RU', 'Altai', 'AL', 'the republic'],
  ])('%s, %s is %s: %s', (country, name, code) => {
    expect(regionCode(country, name)).toBe(code)
  })

  it.each([
    ['TW', 'Taipei'],
    ['HK', 'Kowloon'],
    ['CN', 'Taiwan'],
    ['RS', 'Central Serbia'],
    ['US', 'Bavaria'],
    ['US', '__proto__'],
    ['US', '='],
    ['ZZ', 'California'],
    ['__proto__', 'California'],
  ])('%s, %j has no code', (country, name) => {
    expect(regionCode(country, name)).toBeNull()
  })

  it('no English name finds another region, except city names that the databases give to the surrounding region', () => {
    const wrong: string[] = []
    for (const { code, parent } of iso31662) {
      const [country = '', region = ''] = code.split('-')
      if (parent !== country || ['TW', 'HK', 'MO'].includes(country)) continue
      const name = new Map(
        (cldrRegionNames[country] ?? '').split('|').map((entry) => entry.split('=') as [string, string]),
      ).get(region)
      const found = name === undefined ? null : regionCode(country, name)
      if (found !== null && found !== region) wrong.push(`${code} ${name} -> ${found}`)
    }
    expect(wrong).toEqual([
      'AR-C Buenos Aires -> B',
      'BG-22 Sofia -> 23',
      'BY-HM Minsk -> MI',
      'EE-205 Hiiumaa -> 39',
      'EE-793 Tartu -> 79',
      'EE-796 Tartu -> 79',
      'HU-VM Veszprém -> VE',
      'LA-VT Vientiane -> VI',
    ])
  })
})
