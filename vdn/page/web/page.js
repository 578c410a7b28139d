// The page of a controller: it queries /v1/view every second, like any other client, and
// asks for a token if the controller requires one.
import { theme } from './design.js'
import { show } from './networks.js'

const $ = id => document.getElementById(id)

async function ask() {
  const token = sessionStorage.getItem('token')
  const answer = await fetch('/v1/view', token ? { headers: { Authorization: 'Bearer ' + token } } : {})
  $('ask').hidden = answer.status !== 401
  if (answer.status === 403) {
    $('ask').hidden = false
    throw new Error((await answer.json()).error)
  }
  if (!answer.ok) throw new Error(answer.status === 401 ? 'The controller wants a token.' : 'The controller answers ' + answer.status + '.')
  const view = await answer.json()
  $('domain').textContent = `${view.domain || ''}, revision ${view.revision}`
  show($('networks'), view)
}

async function forever() {
  for (;;) {
    const trouble = document.hidden ? '' : await ask().then(() => '', e => e.message === 'Failed to fetch' ? 'The controller does not answer: this is its last state.' : e.message)
    $('trouble').textContent = trouble
    $('trouble').hidden = !trouble
    await new Promise(done => setTimeout(done, 1000))
  }
}

theme($('theme'))
$('ask').addEventListener('submit', e => {
  e.preventDefault()
  sessionStorage.setItem('token', $('token').value)
})
forever()
