/** Additions to every page when scripts run: local times, buttons that copy, and live progress. */

/** Times are in UTC; hovering shows the local time. */
document.addEventListener('mouseover', ({ target }) => {
  const time = target instanceof Element ? target.closest('time[datetime]') : null
  if (time === null || time.title !== '') return
  const at = new Date(time.dateTime)
  if (time.dateTime.includes('T') && !Number.isNaN(at.getTime()))
    time.title = `${at.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' })} here`
})

/** Only an encrypted page, or a page of this machine, may write to the clipboard. */
if (navigator.clipboard !== undefined)
  for (const button of document.querySelectorAll('button[data-copy]')) {
    const shown = button.textContent
    button.hidden = false
    button.addEventListener('click', async () => {
      const text = document.getElementById(button.dataset.copy)?.textContent ?? ''
      const done = await navigator.clipboard.writeText(text).then(
        () => true,
        () => false,
      )
      button.textContent = done ? 'Copied' : 'Select and copy it by hand'
      setTimeout(() => {
        button.textContent = shown
      }, 2000)
    })
  }

/** Running work shows its progress; the page is loaded again when the work is done. */
for (const element of document.querySelectorAll('[data-progress]')) {
  const source = new EventSource(element.dataset.progress)
  source.addEventListener('progress', ({ data }) => {
    element.textContent = data
  })
  source.addEventListener('done', () => {
    source.close()
    location.reload()
  })
}

/** A form that is being sent is not sent again by a second click. */
document.addEventListener('submit', ({ target, submitter }) => {
  if (!(target instanceof HTMLFormElement) || target.method !== 'post') return
  if (target.dataset.sent === undefined) target.dataset.sent = ''
  setTimeout(() => submitter?.setAttribute('disabled', ''))
})
addEventListener('pageshow', () => {
  for (const button of document.querySelectorAll('form[data-sent] button[disabled]'))
    button.removeAttribute('disabled')
})
