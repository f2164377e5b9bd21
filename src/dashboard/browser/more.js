/**
 * Lists that are longer than a page grow in place; without scripts, their links lead to the next page. Fields whose values are chosen by name
 * get suggestions.
 */
import './htmx.js'

/** A whole API key is a secret: it is sent with its form, and not in an address. */
document.addEventListener('htmx:config:request', (event) => {
  const { sourceElement } = event.detail.ctx
  if (sourceElement instanceof HTMLInputElement && sourceElement.value.trim().startsWith('enl_'))
    event.preventDefault()
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
