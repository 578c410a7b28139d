// Networks of a domain: a picture of nodes with their pods and of federated domains, and
// tables with rates and drops. It shows a view of the controller's API and requests nothing.
import { element, format, table } from './design.js'

const colors = new Map()
const color = network => {
  if (!colors.has(network)) colors.set(network, 'c' + (colors.size % 8 + 1))
  return colors.get(network)
}

const number = text => ({ text, class: 'number' })
const named = network => ({ text: network, node: element('span', { class: 'text' }, element('span', { class: 'swatch ' + color(network) }), network) })
const units = { T: 1e12, G: 1e9, M: 1e6, k: 1e3 }
const bits = rate => parseFloat(rate || 0) * (units[String(rate).slice(-1)] || 1)
const words = rate => format(rate < 1e3 ? Math.round(rate) : rate, 'bit/s')
const addresses = list => (list || []).map(a => a.split('/')[0]).join(', ')
const sum = (rows, field) => rows.reduce((s, r) => s + (field === 'drops' ? r.drops || 0 : bits(r[field])), 0)

// ratesOf are the counters' rates of all nodes that a test picks.
const ratesOf = (view, pick) => view.nodes.flatMap(n => (n.rates || []).filter(r => pick(r, n)))
const whole = r => !r.attachment
const dropped = rows => sum(rows, 'drops') ? { text: sum(rows, 'drops').toFixed(0), class: 'number bad' } : number(0)

const parts = ['networks', 'nodes', 'hosts', 'peers']
const titles = { networks: 'Networks', nodes: 'Nodes and links', hosts: 'Hosts', peers: 'Federated domains' }

// show shows a view in an element, and again when it has changed.
export function show(root, view) {
  if (!root.picture) {
    root.notes = element('ul', { class: 'bad' })
    root.picture = element('svg', { class: 'networks-picture', role: 'img', 'aria-label': 'Nodes with their pods, and federated domains' })
    root.tables = Object.fromEntries(parts.map(p => [p, element('table')]))
    root.replaceChildren(root.notes, root.picture, ...parts.flatMap(p => [element('h2', {}, titles[p]), element('div', { class: 'panel wide' }, root.tables[p])]))
  }
  view.networks ||= []
  view.attachments ||= []
  view.nodes ||= []
  view.networks.forEach(n => color(n.name))
  root.notes.replaceChildren(...(view.notes || []).map(text => element('li', {}, text)))
  picture(root.picture, view)
  tables(root.tables, view)
}

const keyed = (key, cells) => ({ key, cells })

function tables(t, view) {
  table(t.networks, ['network', 'mode', 'subnets', 'hosts', number('guaranteed rate'), number('max rate'), number('sends'), number('drops/s'), 'peer networks', 'allowed CIDRs'],
    view.networks.map(n => {
      const rates = ratesOf(view, r => r.network === n.name && whole(r)), all = ratesOf(view, r => r.network === n.name)
      return keyed(n.name, [named(n.name), n.mode || 'macvlan', (n.subnets || []).map(s => s.cidr).join(', '),
        number(view.attachments.filter(a => a.network === n.name).length), number(n.guaranteedRate ? words(bits(n.guaranteedRate)) : ''),
        number(n.maxRate ? words(bits(n.maxRate)) : ''), number(words(sum(rates, 'sent'))), dropped(all),
        (n.peerNetworks || []).join(', '), (n.allowedCIDRs || []).join(', ')])
    }))
  table(t.nodes, ['node', 'state', 'means', 'link', number('carries'), number('sends'), number('drops/s')],
    view.nodes.flatMap(n => (n.uplinks || []).map(u => {
      const rates = ratesOf(view, (r, of) => of.name === n.name && r.device === u.device && whole(r))
      const state = !n.alive ? { text: 'silent for ' + Math.round(n.heard) + ' s', class: 'bad' } : n.error ? { text: n.error, class: 'bad' } : n.degraded ? { text: 'degraded: ' + n.degraded.join('; '), class: 'bad' } : 'holds plan ' + n.applied
      return keyed(n.name + ' ' + u.device, [n.name + (n.gateway ? ' (gateway)' : ''), state, n.means, u.device, number(u.rate ? words(bits(u.rate)) : ''), number(words(sum(rates, 'sent'))), dropped(rates)])
    })))
  table(t.hosts, ['host', 'network', 'node', 'addresses', 'device', 'state', number('sends'), number('receives'), number('drops/s')],
    view.attachments.map(a => {
      const rates = ratesOf(view, r => r.attachment === a.id)
      return keyed(a.id, [a.owner || a.id, named(a.network), a.node, addresses(a.addresses), a.device || '', a.phase, number(words(sum(rates, 'sent'))), number(words(sum(rates, 'received'))), dropped(rates)])
    }))
  table(t.peers, ['domain', 'state', 'network', 'prefixes', number('hosts')], (view.peers || []).flatMap(p => {
    const state = p.connected ? 'connected' : { text: p.error || 'not connected', class: 'bad' }
    return (p.networks && p.networks.length ? p.networks : [{}]).map(n => keyed(p.domain + '/' + n.name, [p.domain, state,
      n.name ? named(p.domain + '/' + n.name) : '', n.refused ? { text: n.refused, class: 'bad' } : (n.prefixes || []).join(', '), number(n.name ? (n.hosts || []).length : '')]))
  }))
}

// box is a node or a domain, with a dot for each host; it returns its height.
function box(x, y, title, note, bad, hosts) {
  const perRow = 16, size = 22, rows = Math.max(1, Math.ceil(hosts.length / perRow)), height = 44 + rows * size
  const kind = bad ? 'bad' : ''
  const g = element('g', {}, element('rect', { class: kind, x, y, width: 400, height, rx: 6 }),
    element('text', { class: 'name', x: x + 12, y: y + 20 }, title), element('text', { class: 'note ' + kind, x: x + 388, y: y + 20, 'text-anchor': 'end' }, note))
  hosts.forEach((h, i) => g.append(element('circle', { class: `host ${color(h.network)}${h.up ? '' : ' down'}`, cx: x + 24 + i % perRow * 23.5, cy: y + 42 + Math.floor(i / perRow) * size, r: 8 }, element('title', {}, h.title))))
  return { g, height }
}

function picture(svg, view) {
  const boxes = [], middle = 480
  let left = 10, right = 10
  const lines = element('g')
  for (const n of view.nodes) {
    const hosts = view.attachments.filter(a => a.node === n.name).map(a => ({ network: a.network, up: a.phase === 'up', title: `${a.owner || a.id}\n${a.network}\n${addresses(a.addresses)}` }))
    const rates = ratesOf(view, (r, of) => of.name === n.name && whole(r))
    const b = box(10, left, n.name + (n.gateway ? ' (gateway)' : ''), n.alive ? words(sum(rates, 'sent')) : 'silent', !n.alive || n.error, hosts)
    lines.append(element('line', { x1: 410, x2: middle, y1: left + 20, y2: left + 20 }))
    boxes.push(b.g)
    left += b.height + 14
  }
  for (const p of view.peers || []) {
    const hosts = (p.networks || []).filter(n => !n.refused).flatMap(n => (n.hosts || []).map(h => ({ network: p.domain + '/' + n.name, up: true, title: `${h.owner || ''}\n${p.domain}/${n.name}\n${addresses(h.addresses)}` })))
    const b = box(550, right, p.domain, p.connected ? 'connected' : 'not connected', !p.connected, hosts)
    lines.append(element('line', { class: p.connected ? '' : 'bad', x1: middle, x2: 550, y1: right + 20, y2: right + 20 }))
    boxes.push(b.g)
    right += b.height + 14
  }
  lines.append(element('line', { class: 'segment', x1: middle, x2: middle, y1: 30, y2: Math.max(30, left, right) - 14 }))
  svg.setAttribute('viewBox', `0 0 960 ${Math.max(left, right)}`)
  svg.replaceChildren(lines, ...boxes)
}
