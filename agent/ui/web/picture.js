// Pictures: the topology with rates and the state of sessions, and drains over time.
import { clock, element, format } from './design.js'

const boxWidth = 250, boxHeight = 56, gap = 16, columns = [0, 425, 850], maxBoxes = 14

// topology draws routers, load balancers, and the nodes of their backends.
export function topology(svg, agents, backends, { open, up }) {
  const balancers = agents.filter(a => a.error || /balancer/.test(a.status.role))
  const routers = routersOf(balancers), nodes = nodesOf(backends)
  const lists = [routers, balancers.map(a => balancer(a, up)), nodes]
  const height = Math.max(...lists.map(l => Math.min(l.length, maxBoxes) * (boxHeight + gap)), boxHeight + gap) + 24
  const parts = [], links = element('g')
  lists.forEach((list, column) => {
    const shown = list.slice(0, maxBoxes), top = 24 + (height - 24 - shown.length * (boxHeight + gap)) / 2
    parts.push(element('text', { class: 'small', x: columns[column], y: 14 }, ['Routers', 'Load balancers', 'Backends, by node'][column] + (list.length > maxBoxes ? `, ${maxBoxes} of ${list.length}` : '')))
    shown.forEach((b, i) => {
      b.x = columns[column]
      b.y = top + i * (boxHeight + gap)
      parts.push(box(b, open))
    })
    if (!shown.length) parts.push(element('text', { class: 'small', x: columns[column], y: height / 2 + 12 }, 'none'))
  })
  const [, boxes] = lists, most = Math.max(1, ...nodes.flatMap(n => [...n.rates.values()]))
  for (const b of boxes.slice(0, maxBoxes)) {
    for (const r of routers.slice(0, maxBoxes)) {
      const p = r.peers.get(b.name)
      if (p) links.append(link(r, b, { class: 'link ' + (up(p) ? 'up' : 'down'), 'stroke-width': up(p) && p.bfd === 'up' ? 4 : 2 }, `${b.name} to ${r.name}: ${p.state}, BFD ${p.bfd || 'off'}${p.lastError && !up(p) ? ', ' + p.lastError : ''}`))
    }
    for (const n of nodes.slice(0, maxBoxes)) {
      const rate = n.rates.get(b.name)
      if (rate !== undefined) links.append(link(b, n, { class: 'link flow', 'stroke-width': (1 + 7 * Math.sqrt(rate / most)).toFixed(1) }, `${b.name} to ${n.name}: ${format(rate, 'packets/s')}`))
    }
  }
  svg.setAttribute('viewBox', `-2 0 ${columns[2] + boxWidth + 4} ${height}`)
  const focused = svg.contains(document.activeElement) && document.activeElement.getAttribute('data-key')
  svg.replaceChildren(links, ...parts)
  if (focused) svg.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus()
}

function balancer(a, up) {
  if (a.error) return { name: a.name, line: a.error, kind: 'bad absent', lineKind: 'bad' }
  const t = a.rates?.node?.total, peers = a.status.peers, drain = a.status.drain
  const down = peers.filter(p => !up(p)).length
  const line = drain ? drain.stage : down ? `${down} of ${peers.length} peers down` : t ? `${format(t.packetsPerSecond, 'packets/s')}, ${format(t.bitsPerSecond, 'bit/s')}` : 'no rates'
  const kind = drain ? 'warn' : down ? 'bad' : ''
  return { name: a.name, line, kind, lineKind: kind }
}

// routersOf returns the BGP neighbors of load balancers, by address.
function routersOf(balancers) {
  const all = new Map()
  for (const a of balancers) {
    for (const p of a.status?.peers || []) {
      if (!p.as) continue // layer 2 or a cloud
      const r = all.get(p.address) || { name: p.name || p.address, as: p.as, peers: new Map() }
      r.peers.set(a.name, p)
      all.set(p.address, r)
    }
  }
  for (const r of all.values()) {
    const peers = [...r.peers.values()], established = peers.filter(p => p.state === 'established').length, bfd = peers.filter(p => p.bfd === 'up').length
    const off = peers.every(p => !p.bfd || p.bfd === 'off')
    r.line = `AS ${r.as}, BGP ${established}/${peers.length}, BFD ${off ? 'off' : bfd + '/' + peers.length}`
    r.kind = r.lineKind = established < peers.length || !off && bfd < peers.length ? 'bad' : ''
  }
  return [...all.values()].sort((a, b) => a.name < b.name ? -1 : 1)
}

// nodesOf groups backends by their node. Without one, a backend is its own.
function nodesOf(backends) {
  const all = new Map()
  for (const b of backends) {
    const key = b.node || b.name || b.backend
    const n = all.get(key) || { name: key, count: 0, inService: 0, down: [], total: 0, rates: new Map(), backend: b.backend }
    n.count++
    if (b.state === 'in-service') n.inService++
    if (b.health === 'down') n.down.push(b)
    n.total += b.packetsPerSecond
    for (const o of b.on) n.rates.set(o.agent, (n.rates.get(o.agent) || 0) + (o.packetsPerSecond || 0))
    all.set(key, n)
  }
  for (const n of all.values()) {
    n.line = n.down.length ? `${n.down.length} of ${n.count} backends down` : `${n.inService}/${n.count} in service, ${format(n.total, 'packets/s')}`
    n.kind = n.lineKind = n.down.length ? 'bad' : n.inService < n.count ? 'warn' : ''
    n.explain = ['backend', n.down[0]?.backend || n.backend]
  }
  return [...all.values()].sort((a, b) => b.down.length - a.down.length || b.total - a.total || (a.name < b.name ? -1 : 1))
}

const shorten = (text, most) => text.length > most ? text.slice(0, most - 1) + '…' : text

function box(b, open) {
  const g = element('g', { class: 'box ' + (b.kind || ''), 'data-key': b.name },
    element('rect', { x: b.x, y: b.y, width: boxWidth, height: boxHeight, rx: 8 }, element('title', {}, `${b.name}\n${b.line}`)),
    element('text', { class: 'strong', x: b.x + 14, y: b.y + 23 }, shorten(b.name, 30)), element('text', { class: 'small ' + (b.lineKind || ''), x: b.x + 14, y: b.y + 42 }, shorten(b.line, 36)))
  if (b.explain) {
    const show = () => open(...b.explain)
    g.setAttribute('tabindex', 0)
    g.setAttribute('role', 'button')
    g.setAttribute('aria-label', `${b.name}: ${b.line}`)
    g.addEventListener('click', show)
    g.addEventListener('keydown', e => {
      if (e.key !== 'Enter') return
      e.preventDefault()
      show()
    })
  }
  return g
}

function link(from, to, attributes, text) {
  const x1 = from.x + boxWidth, y1 = from.y + boxHeight / 2, x2 = to.x, y2 = to.y + boxHeight / 2, middle = (x1 + x2) / 2
  return element('path', { ...attributes, d: `M${x1},${y1}C${middle},${y1} ${middle},${y2} ${x2},${y2}` }, element('title', {}, text))
}

const stages = { DrainStarted: 'shutdown', RoutesWithdrawn: 'withdrawn', DrainCompleted: 'drained', DrainTimedOut: 'timed-out', DrainDeferred: 'deferred', DrainEnded: '' }
const meanings = { deferred: 'deferred', shutdown: 'routes less preferred', withdrawn: 'routes withdrawn', drained: 'drained', 'timed-out': 'flows cut off' }

// timeline draws a row for each node that has drained: its stages over time.
export function timeline(svg, events, now) {
  const width = 1100, left = 180, row = 34, nodes = [...new Set(events.map(e => e.agent))].sort()
  const from = Math.min(now - 60000, ...events.map(e => e.at)), x = at => left + (at - from) / (now - from) * (width - left - 10)
  const parts = nodes.map((name, i) => {
    const own = events.filter(e => e.agent === name).sort((a, b) => a.at - b.at), y = 30 + i * row
    return element('g', {}, element('text', { x: 0, y: y + 16 }, shorten(name, 24)), own.map((e, j) => {
      const end = own[j + 1]?.at ?? now, stage = stages[e.type]
      return stage ? element('rect', { class: 'stage ' + stage, x: x(e.at).toFixed(1), y, width: Math.max(3, x(end) - x(e.at)).toFixed(1), height: 22, rx: 3 },
        element('title', {}, `${name}, ${clock(e.at)} to ${own[j + 1] ? clock(end) : 'now'}: ${meanings[stage]}${e.cause ? ', ' + e.cause : ''}`)) : null
    }))
  })
  const height = 30 + nodes.length * row
  const keys = nodes.length ? Object.entries(meanings).map(([stage, text], i) => element('g', {}, element('rect', { class: 'stage ' + stage, x: left + i * 170, y: 6, width: 12, height: 12 }), element('text', { class: 'small', x: left + i * 170 + 18, y: 16 }, text))) : []
  const axis = nodes.length ? [from, (from + now) / 2, now].map((at, i) => element('text', { class: 'small', x: x(at), y: height + 14, 'text-anchor': ['start', 'middle', 'end'][i] }, clock(at))) : [element('text', { class: 'small', x: 0, y: 20 }, 'no load balancer has drained')]
  svg.setAttribute('viewBox', `0 0 ${width} ${height + 20}`)
  svg.replaceChildren(...keys, ...parts, ...axis)
}
