import type { Meters } from '../call/capability.ts'

/** The api processes that this one knows, itself among them. */
export type KnownPeers = () => readonly {
  readonly own: boolean
  readonly connected: boolean
  readonly passedBy: boolean
}[]

/** `look` gives null in a process that knows none. */
export const peerGauge = (meters: Meters, look: () => ReturnType<KnownPeers> | null): void =>
  meters.gauge(
    {
      name: 'peers',
      help: 'Other api processes: live by the table, connected to this one, passed by because they answered too late',
      labels: ['state'],
    },
    () => {
      const peers = look()?.filter(({ own }) => !own)
      if (peers === undefined) return []
      return [
        { labels: { state: 'live' }, value: peers.length },
        { labels: { state: 'connected' }, value: peers.filter(({ connected }) => connected).length },
        { labels: { state: 'passed_by' }, value: peers.filter(({ passedBy }) => passedBy).length },
      ]
    },
  )
