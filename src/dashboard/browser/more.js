/** Lists that are longer than a page grow in place; without scripts, their links lead to the next page. */
import './htmx.js'
