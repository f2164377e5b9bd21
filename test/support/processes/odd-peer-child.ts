/** The child process of `startOddPeer`: takes orders from its parent, one at a time. */
import { type OddManner, openOddPeer } from './odd-peer.ts'

type Order = { readonly join: OddManner } | { readonly leave: true } | { readonly asked: true }

const peer = await openOddPeer()
const obey = async (order: Order): Promise<number> => {
  if ('join' in order) await peer.join(order.join)
  else if ('leave' in order) await peer.leave()
  return peer.asked()
}
process.on('message', (order: Order) => {
  obey(order).then(
    (asked) => process.send?.({ asked }),
    (error: unknown) => process.send?.({ error: String(error) }),
  )
})
process.on('disconnect', () => void peer.close())
process.send?.({ asked: 0 })
