import { inject, test } from 'vitest'
import { docker } from './docker.ts'
test('x', async () => { console.log(inject('composeSkipped'), await docker('images')) })
