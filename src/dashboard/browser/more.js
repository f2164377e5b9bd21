/**
 * For the pages of people who are signed in. Lists that are longer than a page grow in place; without scripts, their links lead to the next
 * page. Fields whose values are chosen by name, and the search, get suggestions.
 */
import './htmx.js'

/** A whole API key is a secret: it is sent with its form, and not in an address. */
document.addEventListener('htmx:config:request', (event) => {
  const { sourceElement } = event.detail.ctx
  if (sourceElement instanceof HTMLInputElement && sourceElement.value.trim().startsWith('enl_'))
    event.preventDefault()
})

/** Ctrl-K, and a slash outside of fields, lead to the search. */
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

/** A part that refreshes itself keeps the focus: on the link of the same address and place. */
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
