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
