/** Visits `a.b.c`, then `b.c`, then `c`, and returns the first result of `visit` that is not undefined. */
export const firstOfParents = <T>(domain: string, visit: (name: string) => T | undefined): T | undefined => {
  let name = domain
  for (;;) {
    const found = visit(name)
    if (found !== undefined) return found
    const dot = name.indexOf('.')
    if (dot === -1) return undefined
    name = name.slice(dot + 1)
  }
}
