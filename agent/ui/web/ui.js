// The page: what is polled and when, views and keys. Combining answers and showing them is
// up to views.js.
import { theme } from './design.js'
import * as views from './views.js'

const $ = id => document.getElementById(id)
const model = views.model
const pageSize = 50, historyMinutes = 10
const services = { sort: 'state', reverse: false, filter: '', page: 0 }
let view = 'overview', paused = false, timer = 0, polling = null

// rates returns the parameters of a query of rates.
const rates = (of, more = {}) => String(new URLSearchParams({ view: of, interval: '2s', ...more }))

// queries returns what the visible view needs, by name.
function queries() {
  const all = { node: rates('node') }
  if (view === 'overview') {
    all.backends = rates('backends', { sort: 'packets', limit: 200 })
    all.attention = rates('services', { sort: 'state', limit: 8 })
  }
  if (view === 'services') {
    all.services = rates('services', { sort: services.sort, limit: Math.min(1000, (services.page + 1) * pageSize), filter: services.filter, reverse: services.reverse })
  }
  if ($('detail').open && model.detail.kind === 'service') all.detail = rates('backends', { service: model.detail.name, limit: 200, sort: 'packets' })
  return all
}

async function request(path, options = {}) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(20000), ...options })
  if (!answer.ok) throw new Error((await answer.text()).trim())
  return answer.json()
}

// poll queries all agents once, and sets the time of the next poll. It ends the one before.
async function poll() {
  clearTimeout(timer)
  polling?.abort()
  if (document.hidden || paused) return
  const asked = queries(), names = Object.keys(asked), self = polling = new AbortController()
  const params = new URLSearchParams(names.map(n => ['rates', asked[n]]))
  for (const [name, time] of model.since) params.append('since.' + name, time)
  let pause = 2
  try {
    const snapshot = await request('api/agents?' + params, { signal: AbortSignal.any([self.signal, AbortSignal.timeout(20000)]) })
    if (self.signal.aborted) return
    pause = snapshot.pause
    views.take(snapshot, names, historyMinutes)
    $('trouble').hidden = true
    if (snapshot.networks) document.querySelector('[aria-controls=networks]').hidden = false
    await show()
  } catch (e) {
    if (self.signal.aborted) return
    $('trouble').textContent = 'This page is not up to date: ' + e.message
    $('trouble').hidden = false
  }
  if (!self.signal.aborted) timer = setTimeout(poll, pause * 1000)
}

async function show() {
  views.verdict()
  await views[view]({ ...services, size: pageSize, sortBy, open, request })
  if ($('detail').open) views.detailRates()
}

function sortBy(column) {
  services.reverse = services.sort === column && !services.reverse
  services.sort = column
  services.page = 0
  poll()
}

// open shows why an object is as it is, on all nodes.
async function open(kind, name) {
  model.detail = { kind, name }
  views.explain(null)
  if (!$('detail').open) $('detail').showModal()
  poll()
  try {
    const answer = await request('api/explain?' + new URLSearchParams({ kind, name }))
    if (model.detail.name === name) views.explain(answer)
  } catch (e) {
    views.explain([{ name: '', error: e.message, chains: [] }])
  }
}

function select(name) {
  view = name
  for (const tab of document.querySelectorAll('[role=tab]')) {
    const selected = tab.getAttribute('aria-controls') === name
    tab.setAttribute('aria-selected', String(selected))
    tab.tabIndex = selected ? 0 : -1
    $(tab.getAttribute('aria-controls')).hidden = !selected
  }
  history.replaceState(null, '', '#' + name)
  if (model.agents.size) show()
  poll()
}

function pause() {
  paused = !paused
  $('pause').textContent = paused ? 'Continue' : 'Pause'
  $('pause').setAttribute('aria-pressed', String(paused))
  poll()
}

const tabs = () => [...document.querySelectorAll('[role=tab]:not([hidden])')]

// move focuses the next or previous row, or selects the next or previous view.
function move(e) {
  const row = document.activeElement.closest('tr[tabindex]'), tab = document.activeElement.closest('[role=tab]')
  if (tab && (e.key === 'ArrowRight' || e.key === 'ArrowLeft')) {
    const all = tabs(), next = all[(all.indexOf(tab) + (e.key === 'ArrowRight' ? 1 : all.length - 1)) % all.length]
    select(next.getAttribute('aria-controls'))
    next.focus()
    return true
  }
  if (e.key !== 'ArrowDown' && e.key !== 'ArrowUp' || document.activeElement.closest('select')) return false
  const scope = document.querySelector('dialog[open]') || $(view)
  const rows = [...scope.querySelectorAll('tr[tabindex]')]
  const next = row ? rows[rows.indexOf(row) + (e.key === 'ArrowDown' ? 1 : -1)] : rows[0]
  if (next) next.focus()
  return Boolean(next)
}

document.addEventListener('keydown', e => {
  if (e.ctrlKey || e.metaKey || e.altKey) return
  const typing = document.activeElement.closest('input[type=search], select')
  if (typing && e.key === 'Escape') document.activeElement.blur()
  const filter = { services: 'filter', events: 'event-filter' }[view]
  const dialog = document.querySelector('dialog[open]')
  const actions = { '/': () => filter && $(filter).focus(), p: pause, t: () => $('theme').click(), '?': () => $('help').showModal() }
  const tab = tabs()[Number(e.key) - 1]
  if (move(e)) e.preventDefault()
  else if (!typing && !dialog && actions[e.key]) { e.preventDefault(); actions[e.key]() }
  else if (!typing && !dialog && tab && /^[1-9]$/.test(e.key)) select(tab.getAttribute('aria-controls'))
})

theme($('theme'))
for (const tab of document.querySelectorAll('[role=tab]')) tab.addEventListener('click', () => select(tab.getAttribute('aria-controls')))
$('pause').addEventListener('click', pause)
$('keys').addEventListener('click', () => $('help').showModal())
$('filter').addEventListener('input', e => { services.filter = e.target.value; services.page = 0; poll() })
$('event-filter').addEventListener('input', show)
$('warnings').addEventListener('change', show)
$('previous').addEventListener('click', () => { services.page--; poll() })
$('next').addEventListener('click', () => { services.page++; poll() })
$('sample').addEventListener('click', () => views.sample(request))
document.addEventListener('visibilitychange', poll)
const named = location.hash.slice(1)
select(document.querySelector(`[role=tab][aria-controls="${CSS.escape(named)}"]`) ? named : 'overview')
