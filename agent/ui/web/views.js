// What the page shows: answers of agents combined, as tables and charts.
import { chart, clock, element, format, table as tableIn } from './design.js'
import { show as showNetworks } from './networks.js'
import { topology, timeline } from './picture.js'

const $ = id => document.getElementById(id)
const table = (id, ...rest) => tableIn($(id), ...rest)

// model is what is known so far. history holds rates over time, by agent or drop reason.
export const model = { agents: new Map(), since: new Map(), events: [], known: new Map(), traffic: new Map(), drops: new Map(), from: 0, now: Date.now(), detail: {} }

// take adds the answers to a poll. names are those of the queries of rates.
export function take(snapshot, names, minutes) {
  model.now = Date.parse(snapshot.time)
  model.from ||= model.now
  const dropped = new Map()
  for (const a of snapshot.agents) {
    a.rates = Object.fromEntries((a.rates || []).map((r, i) => [names[i], r]))
    model.agents.set(a.name, a)
    a.events.forEach(e => remember(a.name, e))
    const node = a.rates.node
    if (!node || !node.seconds) continue
    if (balances(a)) push(model.traffic, a.name, node.total.bitsPerSecond, minutes)
    for (const d of node.drops || []) dropped.set(d.reason, (dropped.get(d.reason) || 0) + d.perSecond)
  }
  for (const reason of new Set([...dropped.keys(), ...model.drops.keys()])) {
    if (dropped.get(reason) || model.drops.has(reason)) push(model.drops, reason, dropped.get(reason) || 0, minutes)
  }
  model.events.sort((a, b) => b.at - a.at || b.id - a.id)
  for (const e of model.events.splice(4000)) model.known.delete(e.agent + ' ' + e.id)
}

function push(series, name, value, minutes) {
  const points = series.get(name) || []
  points.push([model.now, value])
  while (points[0][0] < model.now - minutes * 60000) points.shift()
  series.set(name, points)
}

// remember adds an event, or counts one that recurs.
function remember(agent, e) {
  const key = agent + ' ' + e.id, known = model.known.get(key)
  const event = { ...e, agent, at: Date.parse(e.last) }
  if (known) Object.assign(known, event)
  else {
    model.known.set(key, event)
    model.events.push(event)
  }
  if (!model.since.has(agent) || Date.parse(model.since.get(agent)) < event.at) model.since.set(agent, e.last)
}

const agents = () => [...model.agents.values()]
const statuses = () => agents().filter(a => a.status)
const balances = a => a.status && /balancer/.test(a.status.role)
const sum = (all, of) => all.reduce((n, one) => n + (of(one) || 0), 0)
const age = text => {
  const s = Math.max(0, (model.now - Date.parse(text)) / 1000)
  if (!text || Number.isNaN(s)) return ''
  return s < 120 ? Math.round(s) + 's' : s < 7200 ? Math.round(s / 60) + 'm' : s < 172800 ? Math.round(s / 3600) + 'h' : Math.round(s / 86400) + 'd'
}
const number = text => ({ text, class: 'number' })
const rate = (value, unit) => number(value ? format(value, unit) : '0')
const state = (text, level) => ({ text, class: 'state text ' + level })
const up = p => p.state === 'established' || p.state === 'up'
const level = s => s === 'active' || s === 'in-service' || s === 'idle' ? 'good' : /pending|drain|dedicated|not-advertised/.test(s) ? 'warn' : 'bad'

// verdict says in one line what is wrong.
export function verdict() {
  const silent = agents().filter(a => a.error), faults = problemList().filter(p => !p.kind)
  const down = statuses().flatMap(a => a.status.peers.filter(p => !up(p)))
  const draining = statuses().filter(a => a.status.drain)
  const parts = [
    silent.length && `${silent.map(a => a.name).join(', ')} ${silent.length > 1 ? 'do' : 'does'} not answer`,
    down.length && `${down.length} ${down.length > 1 ? 'peers are' : 'peer is'} down`,
    faults.length && `${faults.length} ${faults.length > 1 ? 'problems' : 'problem'}`,
    draining.length && `${draining.map(a => a.name).join(', ')} ${draining.length > 1 ? 'drain' : 'drains'}`,
  ].filter(Boolean)
  const n = agents().length
  $('verdict').textContent = parts.length ? parts.join('; ') : `${n} ${n === 1 ? 'node answers' : 'nodes answer'}, no problems`
  $('verdict').className = silent.length || down.length || faults.length ? 'bad' : parts.length ? 'warn' : 'good'
  $('clock').textContent = clock(model.now)
  document.title = (parts.length ? '▲ ' : '') + 'Fairlead'
}

// merged returns the rows of a query of rates, each once, with the sum of all nodes.
function merged(query, key) {
  const all = new Map()
  for (const a of agents().filter(balances)) {
    for (const r of a.rates[query]?.rows || []) {
      const id = key(r), m = all.get(id)
      const own = { agent: a.name, state: r.state, reason: r.reason, lastError: r.lastError, packetsPerSecond: r.packetsPerSecond }
      if (!m) { all.set(id, { ...r, on: [own] }); continue }
      for (const f of ['packetsPerSecond', 'bitsPerSecond', 'flowsPerSecond']) m[f] += r[f]
      m.up = Math.min(m.up, r.up)
      m.backends = Math.max(m.backends, r.backends)
      if (level(m.state) !== 'bad' && level(r.state) !== 'good') Object.assign(m, { state: r.state, reason: r.reason })
      m.on.push(own)
    }
  }
  return [...all.values()]
}

// where names the nodes if an object is not in the same state on all of them.
function where(row) {
  const same = row.on.every(o => o.state === row.state)
  return same ? row.reason || '' : row.on.map(o => `${o.agent}: ${o.state}${o.reason ? ' (' + o.reason + ')' : ''}`).join('; ')
}

const total = (query, field) => Math.max(0, ...agents().map(a => a.rates?.[query]?.[field] || 0))

export function overview({ open }) {
  const all = agents(), nodes = all.map(a => a.rates?.node?.total).filter(Boolean)
  const peers = statuses().flatMap(a => a.status.peers), dropRate = sum(all.flatMap(a => a.rates?.node?.drops || []), d => d.perSecond)
  const attention = merged('attention', r => r.service).filter(r => level(r.state) !== 'good' || r.up < r.backends)
  const fact = (value, label, kind = '') => element('li', { class: kind }, element('b', {}, value), label)
  $('facts').replaceChildren(
    fact(`${statuses().length} of ${all.length}`, 'nodes answer', statuses().length < all.length ? 'bad' : ''),
    fact(`${peers.filter(up).length} of ${peers.length}`, 'peers up', peers.every(up) ? '' : 'bad'),
    fact(total('attention', 'all').toLocaleString('en'), 'services'),
    fact(format(sum(nodes, t => t.packetsPerSecond)), 'packets/s'),
    fact(format(sum(nodes, t => t.bitsPerSecond), 'bit/s'), 'from clients'),
    fact(format(sum(nodes, t => t.flowsPerSecond)), 'new connections/s'),
    fact(format(dropRate), 'drops/s', dropRate > 0 ? 'warn' : ''),
  )
  topology($('topology'), all, merged('backends', r => r.backend), { open, up })
  charts({ traffic: 'traffic', dropped: 'drops' })
  table('attention', ['service', 'state', 'backends', 'reason'], attention.map(r => ({ key: r.service, open: () => open('service', r.service),
    cells: [r.service, state(r.state, level(r.state) === 'good' ? 'warn' : level(r.state)), `${r.up}/${r.backends}`, where(r)] })), 'none: all are active, and all backends are up')
  eventTable('latest', model.events.slice(0, 8))
  nodeTable()
}

function nodeTable() {
  table('nodes', ['node', 'state', 'role', 'version', 'up for', 'peers', { text: 'packets/s', class: 'number' }, { text: 'from clients', class: 'number' }, { text: 'problems', class: 'number' }], agents().map(a => {
    const s = a.status, t = a.rates?.node?.total
    if (!s) return { key: a.name, cells: [a.name, { text: a.error, class: 'state bad' }, '', '', '', '', '', '', ''] }
    const kind = s.drain ? 'warn' : s.degraded.length ? 'warn' : 'good', text = s.drain ? s.drain.stage : s.degraded.length ? 'degraded' : 'serving'
    return { key: a.name, cells: [a.name === s.node ? a.name : `${a.name} (${s.node})`, state(text, kind), s.role, s.version, age(s.started), `${s.peers.filter(up).length}/${s.peers.length}`,
      t ? rate(t.packetsPerSecond) : '', t ? rate(t.bitsPerSecond, 'bit/s') : '', number(s.problems.length || '')] }
  }))
}

const drawn = new Map() // charts by the figure's name

// charts draws histories, "traffic" or "drops" by the figure's name, with the events of their time.
function charts(figures) {
  const min = Math.max(model.now - 600000, Math.min(model.from, model.now - 120000))
  const notable = model.events.filter(e => e.at >= min && /Peer|BFD|Drain|Backend(Un)?[Hh]ealthy|Agent/.test(e.type)).slice(0, 40)
  const events = notable.map(e => ({ at: e.at, name: e.type, bad: e.severity === 'Warning', detail: `${e.agent}, ${subject(e)}` }))
  const x = { time: true, min, max: model.now }
  const series = all => [...all].sort(([a], [b]) => a < b ? -1 : 1).map(([name, points]) => ({ name, points }))
  const histories = {
    traffic: { title: 'Traffic from clients, by node', y: { unit: 'bit/s' }, series: series(model.traffic) },
    drops: { title: 'Dropped packets, by reason', y: { unit: 'packets/s' }, series: series(model.drops) },
  }
  for (const [id, history] of Object.entries(figures)) {
    const full = { kind: 'area', group: 'history', x, events, ...histories[history] }
    if (drawn.has(id)) drawn.get(id).update(full)
    else drawn.set(id, chart($(id), full))
  }
}

const columns = [['service', 'name'], ['state', 'state'], ['reason', null], ['backends', 'up'], ['packets/s', 'packets'], ['from clients', 'bits'], ['new connections/s', 'flows']]

const order = {
  name: (a, b) => a.service < b.service ? -1 : 1, state: (a, b) => severity(b) - severity(a), up: (a, b) => a.up / (a.backends || 1) - b.up / (b.backends || 1),
  packets: (a, b) => b.packetsPerSecond - a.packetsPerSecond, bits: (a, b) => b.bitsPerSecond - a.bitsPerSecond, flows: (a, b) => b.flowsPerSecond - a.flowsPerSecond,
}
const severity = r => ['good', 'warn', 'bad'].indexOf(level(r.state))

export function services({ sort, reverse, page, size, sortBy, open }) {
  const rows = merged('services', r => r.service).sort((a, b) => (reverse ? -1 : 1) * order[sort](a, b) || order.name(a, b))
  const matching = Math.max(rows.length, total('services', 'matching'))
  const part = rows.slice(page * size, (page + 1) * size)
  $('page').textContent = matching ? `${page * size + 1} to ${page * size + part.length} of ${matching}` : 'none'
  $('previous').disabled = page === 0
  $('next').disabled = (page + 1) * size >= Math.min(matching, 1000)
  table('all-services', columns.map(([text, by]) => ({ text, class: order[by] && /packets|bits|flows/.test(by) ? 'number' : '', click: by && (() => sortBy(by)),
    sort: by !== sort ? undefined : (sort === 'name' || sort === 'up') !== reverse ? 'ascending' : 'descending' })),
  part.map(r => ({ key: r.service, open: () => open('service', r.service), cells: [r.service, state(r.state, level(r.state)), where(r),
    { text: `${r.up}/${r.backends}`, class: r.up < r.backends ? 'warn' : '' }, rate(r.packetsPerSecond), rate(r.bitsPerSecond, 'bit/s'), rate(r.flowsPerSecond)] })), 'no service matches')
}

export function peers() {
  table('all-peers', ['node', 'peer', 'AS', 'state', 'since', 'BFD', { text: 'received', class: 'number' }, { text: 'sent', class: 'number' }, { text: 'flaps', class: 'number' }, 'last error'],
    statuses().flatMap(a => a.status.peers.map(p => ({ key: a.name + ' ' + p.address, down: !up(p), cells: [a.name, p.name && p.name !== p.address ? `${p.name} (${p.address})` : p.address, p.as || '',
      state(p.state, up(p) ? 'good' : 'bad'), age(p.since), { text: p.bfd || '', class: p.bfd === 'up' ? 'good' : p.bfd && p.bfd !== 'off' ? 'bad' : '' }, number(p.received), number(p.sent), number(p.flaps), up(p) ? '' : p.lastError || ''] }))).sort((a, b) => b.down - a.down))
}

export function drops({ request }) {
  charts({ 'drop-history': 'drops' })
  const all = new Map()
  for (const a of agents()) {
    for (const d of a.rates?.node?.drops || []) {
      const key = d.at + ' ' + d.reason, m = all.get(key) || { ...d, perSecond: 0, total: 0, on: [] }
      m.perSecond += d.perSecond
      m.total += d.total
      if (d.perSecond) m.on.push(`${a.name} ${format(d.perSecond)}`)
      all.set(key, m)
    }
  }
  table('all-drops', ['reason', 'dropped by', { text: 'packets/s', class: 'number' }, { text: 'total', class: 'number' }, 'nodes'], [...all].sort(([, a], [, b]) => b.perSecond - a.perSecond || b.total - a.total).map(([key, d]) => ({ key,
    cells: [{ text: d.reason, class: d.perSecond ? 'warn' : '' }, d.at, rate(d.perSecond), number(d.total.toLocaleString('en')), d.on.join(', ')] })), 'no drops')
  const names = agents().filter(balances).map(a => a.name)
  if ($('sampled').known !== names.join()) {
    $('sampled').known = names.join()
    $('sampled').replaceChildren(...names.map(n => element('option', {}, n)))
  }
}

// sample shows packets that a load balancer drops now; each can be traced.
export async function sample(request) {
  const agent = $('sampled').value, rateOf = sum(model.agents.get(agent)?.rates?.node?.drops || [], d => d.perSecond)
  const every = 2 ** Math.max(0, Math.round(Math.log2(rateOf / 8 || 1)))
  $('sample').disabled = true
  $('sample-state').textContent = 'sampling'
  try {
    const list = await request('api/drops?' + new URLSearchParams({ agent, every }))
    $('sample-state').textContent = list.length ? '' : 'nothing was dropped'
    table('samples', ['time', 'reason', 'interface', 'packet', ''], list.map((d, i) => ({ key: d.time + i, cells: [{ text: clock(Date.parse(d.time)), class: 'text' }, d.reason, d.interface, d.lines.join('; '),
      { text: i, node: element('button', { type: 'button', click: () => trace(request, agent, d) }, 'Trace') }] })))
  } catch (e) {
    $('sample-state').textContent = e.message
  }
  $('sample').disabled = false
}

async function trace(request, agent, d) {
  const out = $('traced')
  out.hidden = false
  out.textContent = 'tracing'
  try {
    const t = await request('api/trace?' + new URLSearchParams({ agent }), { method: 'POST', body: JSON.stringify({ interface: d.interface, frame: d.data }) })
    const part = (name, lines) => (lines || []).map((text, i) => (i ? '' : name).padEnd(10) + text)
    out.textContent = [...part('node', [agent]), ...part('in', t.inLines), ...part('why', t.steps.map(s => s.text)), ...part('verdict', [t.verdict + (t.drop ? ', ' + t.drop : '')]),
      ...part('out', t.outLines), ...part('would', t.would)].join('\n')
  } catch (e) {
    out.textContent = e.message
  }
  out.focus()
}

const drainType = /^Drain|^RoutesWithdrawn$/

export function drains() {
  timeline($('timeline'), model.events.filter(e => drainType.test(e.type)), model.now)
  table('all-drains', ['node', 'stage', 'since', { text: 'flows left', class: 'number' }, 'reasons'], statuses().filter(a => a.status.drain).map(a => {
    const d = a.status.drain
    return { key: a.name, cells: [a.name, state(d.stage, 'warn'), age(d.since), number(d.flows), d.reasons.join('; ')] }
  }), 'no load balancer drains')
}

const subject = e => [e.object.kind, e.object.namespace ? e.object.namespace + '/' + e.object.name : e.object.name, e.field].filter(Boolean).join(' ')

function eventTable(id, list) {
  table(id, ['time', 'node', 'type', 'object', 'change', 'cause'], list.map(e => ({ key: e.agent + ' ' + e.id, cells: [{ text: clock(e.at), class: 'text' }, e.agent,
    state(e.type + (e.count > 1 ? ` ×${e.count}` : ''), e.severity === 'Warning' ? 'bad' : 'good'), subject(e), [e.from, e.to].filter(Boolean).join(' → '), e.cause || ''] })), 'no events')
}

export function events() {
  const text = $('event-filter').value.toLowerCase(), only = $('warnings').checked
  const has = e => `${e.agent} ${e.type} ${subject(e)} ${e.from} ${e.to} ${e.cause}`.toLowerCase().includes(text)
  eventTable('all-events', model.events.filter(e => (!only || e.severity === 'Warning') && has(e)).slice(0, 500))
}

// problemList returns what is wrong, each once with its nodes.
function problemList() {
  const all = new Map()
  const add = (agent, p) => {
    const key = JSON.stringify([p.where, p.object, p.field, p.message]), m = all.get(key) || { ...p, key, on: [] }
    m.on.push(agent)
    all.set(key, m)
  }
  for (const a of agents()) {
    if (!a.status) { add(a.name, { object: 'agent', message: a.error, kind: 'no answer' }); continue }
    a.status.problems.forEach(p => add(a.name, p))
    a.status.degraded.forEach(d => add(a.name, { object: d.feature, message: d.message + (d.lost ? '; lost: ' + d.lost : ''), kind: 'degraded' }))
    ;(a.status.stale || []).forEach(o => add(a.name, { object: o.object, where: o.where, message: 'the last valid version is in use', kind: 'stale' }))
  }
  return [...all.values()]
}

export function problems() {
  const all = problemList(), kind = p => p.kind || (p.failure ? 'failure' : 'configuration')
  table('all-problems', ['kind', 'where', 'object', 'field', 'problem', 'nodes'], all.slice(0, 500).map(p => ({ key: p.key,
    cells: [state(kind(p), p.kind && p.kind !== 'no answer' ? 'warn' : 'bad'), { text: p.where || '', class: 'text' }, p.object || '', p.field || '', p.message, p.on.join(', ')] })), 'no problems')
}

// explain shows the chains of an object on all nodes; null while they are queried.
export function explain(answers) {
  $('detail-name').textContent = model.detail.kind + ' ' + model.detail.name
  if (!answers) return $('detail-body').replaceChildren(element('p', { class: 'muted' }, 'asking all nodes'))
  const relevant = answers.filter(a => a.chains?.length)
  const others = answers.filter(a => !a.chains?.length)
  $('detail-body').replaceChildren(
    ...(model.detail.kind === 'service' ? [element('div', { class: 'panel wide' }, element('h3', {}, 'Backends'), element('table', { id: 'detail-backends' }))] : []),
    ...relevant.flatMap(a => a.chains.map(c => chain(a.name, c))),
    others.length ? element('p', { class: 'muted' }, others.map(a => `${a.name}: ${a.error || 'nothing known'}`).join('; ')) : '')
  detailRates()
}

function chain(agent, c) {
  const stop = c.steps.find(s => !s.ok), mark = s => s.ok ? s.reason ? 'warning' : 'ok' : s === stop ? 'stops' : 'no'
  const cells = s => [element('td', { class: 'state text ' + (s.ok ? s.reason ? 'warn' : 'good' : 'bad') }, mark(s)), ...[s.step, s.object, s.source, s.desired, s.programmed, s.reason].map(text => element('td', {}, text || ''))]
  return element('div', { class: 'panel wide' },
    element('h3', { class: stop ? 'bad' : '' }, `${agent}: ` + (stop ? `stops at “${stop.step}”: ${stop.reason || ''}` : 'complete')),
    stop?.hint ? element('p', {}, 'Fix: ' + stop.hint) : '',
    element('table', {}, element('thead', {}, element('tr', {}, ['', 'step', 'object', 'source', 'desired', 'programmed', 'reason'].map(h => element('th', {}, h)))),
      element('tbody', {}, c.steps.map(s => element('tr', {}, cells(s))))))
}

export function detailRates() {
  if (!$('detail-backends')) return
  table('detail-backends', ['backend', 'node', 'state', 'health', { text: 'packets/s', class: 'number' }, { text: 'from clients', class: 'number' }, 'last probe error'],
    merged('detail', r => r.frontend + r.backend).map(r => ({ key: r.frontend + ' ' + r.backend, cells: [r.name ? `${r.backend} (${r.name})` : r.backend, r.node || '', state(r.state, level(r.state)), r.health || '',
      rate(r.packetsPerSecond), rate(r.bitsPerSecond, 'bit/s'), [...new Set(r.on.map(o => o.lastError).filter(Boolean))].join('; ')] })))
}

// networks asks the controller of virtual networks.
export async function networks({ request }) {
  try {
    showNetworks($('networks'), await request('api/networks'))
  } catch (e) {
    $('networks').picture = null
    $('networks').replaceChildren(element('p', { class: 'bad' }, e.message))
  }
}
