/**
 * For pages of signed-in users. Long lists grow in place; without scripts, a link leads to the next page. The search and fields for names get
 * suggestions.
 */
import './htmx.js'

/** Does not request suggestions for a whole API key, because a secret must not be in a URL. */
document.addEventListener('htmx:config:request', (event) => {
  const { sourceElement } = event.detail.ctx
  if (sourceElement instanceof HTMLInputElement && sourceElement.value.trim().startsWith('enl_'))
    event.preventDefault()
})

/** Ctrl-K, or a slash outside of a field, moves the focus to the search. */
document.addEventListener('keydown', (event) => {
  const { key, ctrlKey, metaKey, altKey, target } = event
  const types = target instanceof Element && target.closest('input, textarea, select') !== null
  const isSlash = key === '/' && !ctrlKey && !metaKey && !types
  const isCtrlK = key === 'k' && ctrlKey !== metaKey
  if (altKey || !(isSlash || isCtrlK)) return
  event.preventDefault()
  document.getElementById('q')?.focus()
  document.getElementById('q')?.select()
})

/** Keeps the focus on the same link when a part of the page is refreshed. */
let focused = null
const alike = (root, { tag, href }) =>
  [...root.querySelectorAll(tag)].filter((one) => one.getAttribute('href') === href)

document.addEventListener('htmx:before:swap', ({ detail: { ctx } }) => {
  const { target } = ctx
  const element = document.activeElement
  focused = null
  if (element === null || element === document.body || !target.contains(element)) return
  const kind = { tag: element.tagName, href: element.getAttribute('href') }
  focused = { ...kind, place: alike(target, kind).indexOf(element) }
})
document.addEventListener('htmx:after:swap', ({ detail: { ctx } }) => {
  const part = document.getElementById(ctx.target.id)
  if (focused === null || part === null || part.contains(document.activeElement)) return
  const found = alike(part, focused)
  const one = found[focused.place] ?? found[0]
  one?.focus({ preventScroll: true })
})
