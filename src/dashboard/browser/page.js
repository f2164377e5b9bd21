/** Adds local times and copy buttons to every page. */

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone
const isLocal = document.documentElement.dataset.times === 'local'

const twoDigits = (number) => String(number).padStart(2, '0')

/** Formats a local time like `shown`, the UTC time on the page. */
const localText = (at, shown) => {
  const day = [at.getFullYear(), twoDigits(at.getMonth() + 1), twoDigits(at.getDate())].join('-')
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map(twoDigits).join(':')
  return `${day} ${time}${shown.slice(19)}`
}

const asLocal = (text) => text.replace('(UTC)', '(local)')

/** Replaces the word UTC in the head of a time's column, in its label and after the time. */
const renameAround = (time) => {
  const cell = time.closest('[data-head]')
  if (cell !== null) {
    cell.dataset.head = asLocal(cell.dataset.head)
    const head = cell.closest('table').tHead?.rows[0]?.cells[cell.cellIndex]
    if (head !== undefined) head.textContent = asLocal(head.textContent)
  }
  const label = time.closest('dd')?.previousElementSibling
  if (label) label.textContent = asLocal(label.textContent)
  const after = time.nextSibling
  if (after instanceof Text) after.data = after.data.replace(/^ UTC\b/, '')
}

/** Days and months are not converted to local time, because they are days and months in UTC. */
const showLocal = (root) => {
  for (const time of root.querySelectorAll('time[datetime*="T"]:not([title])')) {
    const at = new Date(time.dateTime)
    if (Number.isNaN(at.getTime())) continue
    time.title = `${time.textContent} UTC`
    time.textContent = localText(at, time.textContent)
    renameAround(time)
  }
}

if (isLocal) {
  showLocal(document)
  document.addEventListener('htmx:after:settle', () => showLocal(document))
  const note = document.getElementById('times')
  if (note !== null) note.textContent = `Times are in ${zone}; days, months and fields are in UTC.`
}

/** Shows the local time when the pointer is on a UTC time. */
document.addEventListener('mouseover', ({ target }) => {
  const time = target instanceof Element ? target.closest('time[datetime]') : null
  if (time === null || time.title !== '') return
  const at = new Date(time.dateTime)
  if (time.dateTime.includes('T') && !Number.isNaN(at.getTime()))
    time.title = `${at.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' })} local time`
})

const copyOnClick = (button, textOf) => {
  const shown = [...button.childNodes]
  button.addEventListener('click', async () => {
    const done = await navigator.clipboard.writeText(textOf()).then(
      () => true,
      () => false,
    )
    button.textContent = done ? 'Copied' : 'Select the text and copy it'
    setTimeout(() => button.replaceChildren(...shown), 2000)
  })
}

const copyButtonOf = (text) => {
  const button = document.createElement('button')
  const about = document.createElement('span')
  button.type = 'button'
  button.className = 'copy'
  button.setAttribute('aria-live', 'polite')
  about.className = 'unseen'
  about.textContent = ` ${text}`
  button.append('Copy', about)
  return button
}

/** Only encrypted or local pages can write to the clipboard. */
const offerCopies = () => {
  for (const button of document.querySelectorAll('button[data-copy][hidden]')) {
    button.hidden = false
    copyOnClick(button, () => document.getElementById(button.dataset.copy)?.textContent ?? '')
  }
  for (const element of document.querySelectorAll('[data-copyable]')) {
    if (element.nextElementSibling?.matches('button.copy')) continue
    const text = element.textContent.trim()
    const button = copyButtonOf(text)
    copyOnClick(button, () => text)
    element.after(' ', button)
  }
}
if (navigator.clipboard !== undefined) {
  offerCopies()
  document.addEventListener('htmx:after:settle', offerCopies)
}

/** Prevents a second click from sending a form again. */
document.addEventListener('submit', ({ target, submitter }) => {
  if (!(target instanceof HTMLFormElement) || target.method !== 'post') return
  if (target.dataset.sent === undefined) target.dataset.sent = ''
  setTimeout(() => submitter?.setAttribute('disabled', ''))
})
addEventListener('pageshow', () => {
  for (const button of document.querySelectorAll('form[data-sent] button[disabled]'))
    button.removeAttribute('disabled')
})
