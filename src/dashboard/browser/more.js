/** Lists that are longer than a page grow where they are, by links that lead to the next page otherwise. */
import './htmx.js'
