/** Where a sign-in leads to: the page that was asked for. Pure. */

const lengthMax = 500

/**
 * A path of ours, and what is asked there; `/` for anything else. An address of elsewhere must not send people elsewhere: so
 * it begins with one slash, and holds nothing that a browser reads as another one. What it leads to is only ever read.
 */
export const nextOf = (text: string): string => {
  const [path = '', ...rest] = text.split('?')
  const query = rest.join('?')
  const isOurs =
    text.length <= lengthMax &&
    /^(\/[A-Za-z0-9_.-]+)+$/.test(path) &&
    /^[A-Za-z0-9_.~%=&:+-]*$/.test(query) &&
    rest.length <= 1 &&
    path !== '/login'
  return isOurs ? text : '/'
}
