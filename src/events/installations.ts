import { z } from 'zod'
import { uuid } from './primitives.ts'

/** Where an installation is: that it came from elsewhere, and that it goes on where it had left. Places are told without secrets. */

const place = z.string().max(2_000)

/** In the event log it came to: what happened before it was at `from`. */
export const installationMovedV1 = z.object({ move_id: uuid, from: place, to: place })

/** In the event log it had left: what happened at `elsewhere` is not known here. */
export const installationReopenedV1 = z.object({ move_id: uuid, elsewhere: place })
