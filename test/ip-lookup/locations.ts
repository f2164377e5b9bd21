/** Locations with the field names of the wire (Spec §2.3): one without any data, and one with data in every field. */

export const nowhere = {
  continent: null,
  continent_code: null,
  country: null,
  country_code: null,
  region: null,
  region_code: null,
  city: null,
  latitude: null,
  longitude: null,
  postal: null,
  is_eu: false,
  calling_code: null,
}

export const london = {
  continent: 'Europe',
  continent_code: 'EU',
  country: 'United Kingdom',
  country_code: 'GB',
  region: 'England',
  region_code: 'ENG',
  city: 'London',
  latitude: 51.5142,
  longitude: -0.0931,
  postal: 'EC4N',
  is_eu: false,
  calling_code: '44',
}
