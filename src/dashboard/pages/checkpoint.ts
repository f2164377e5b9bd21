import type { Checkpoint } from '../../event-log/tree/checkpoints.ts'
import { count, utc } from '../format.ts'
import { type Html, html } from '../html.ts'
import { figures } from './layout.ts'

/** The log's statement about its own proof; a text if it cannot be read. */
export type CheckpointView = Checkpoint | null | { readonly fault: string }

/** The last signed checkpoint of the whole event log, to be stored outside. */
export const checkpointSection = (checkpoint: CheckpointView, nowMs: number): Html =>
  html`<section aria-labelledby="checkpoint">
<h2 id="checkpoint">Checkpoint</h2>
${
  checkpoint === null
    ? html`<p class="empty">None was signed yet. One is signed every hour, or now with <code>npm run -s cli -- event-log checkpoint</code>.</p>`
    : 'fault' in checkpoint
      ? html`<p class="notice bad" role="alert">${checkpoint.fault} <a href="/commands/event-log/verify">Verify the event log</a></p>`
      : html`<p class="note">Signed over every event up to position ${count(checkpoint.position)}. Keep the note outside:
with it, you can later <a href="/commands/event-log/verify">verify</a> that the log still extends it.</p>
${figures([
  ['Leaves', count(checkpoint.size)],
  ['Signed', utc(new Date(checkpoint.at))],
  ['Age', ageOf(nowMs - Date.parse(checkpoint.at))],
  ['Root', html`<span class="id">${checkpoint.root}</span>`],
])}
<pre class="kept" tabindex="0" aria-label="The signed checkpoint">${checkpoint.note}</pre>
<p class="actions"><a href="/commands/event-log/checkpoints">Earlier checkpoints</a></p>`
}
</section>`

const ageOf = (ms: number): string => {
  const minutes = Math.max(0, Math.floor(ms / 60_000))
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h`
}
