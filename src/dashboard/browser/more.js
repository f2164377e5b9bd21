/**
 * Lists that are longer than a page grow in place; without scripts, their links lead to the next page. Fields whose values are chosen by name
 * get suggestions.
 */
import './htmx.js'

/** A whole API key is a secret: it is sent with its form, and not in an address. */
document.addEventListener('htmx:configRequest', (event) => {
  const { elt } = event.detail
  if (elt instanceof HTMLInputElement && elt.value.trim().startsWith('enl_')) event.preventDefault()
})
