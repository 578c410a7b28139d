// Elements, number formats, tables, the theme and charts of all pages. It needs nothing else and
// requests nothing. A page that imports it calls chart(); a self-contained file embeds it
// and has <figure class="chart"> elements with a chart as JSON (package design).

const svgNames = ['svg', 'g', 'path', 'line', 'rect', 'circle', 'text', 'tspan', 'title']

// element makes an element. Children are elements or text, never HTML.
export function element(name, attributes, ...children) {
  const e = svgNames.includes(name) ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name)
  for (const [key, value] of Object.entries(attributes || {})) {
    if (typeof value === 'function') e.addEventListener(key, value)
    else if (value !== undefined && value !== null && value !== false) e.setAttribute(key, value === true ? '' : value)
  }
  e.append(...children.flat().filter(c => c !== undefined && c !== null && c !== ''))
  return e
}

const prefixes = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']]
const unscaled = ['ms', 's', '%', 'µs', 'ns']

// short returns a number without its unit: "1.25k" or "1,526".
function short(value, unit) {
  const [scale, prefix] = !unscaled.includes(unit) && prefixes.find(([s]) => Math.abs(value) >= s) || [1, '']
  const n = value / scale, size = Math.abs(n)
  const digits = size >= 100 || Number.isInteger(n) ? 0 : size >= 10 ? 1 : 2
  const rounded = size < 0.1 ? n.toPrecision(2) : n.toFixed(digits)
  return [String(+rounded).replace(/\B(?=(\d{3})+(?!\d))(?<!\.\d*)/g, ','), prefix]
}

// format returns "1.25 Mbit/s", "1,526 ms" or "3.2k packets/s".
export function format(value, unit = '') {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–'
  const [number, prefix] = short(value, unit)
  return (/^(bit|B)/.test(unit) ? `${number} ${prefix}${unit}` : `${number}${prefix} ${unit}`).trim()
}

// clock returns the local time of day.
export const clock = ms => new Date(ms).toTimeString().slice(0, 8)

// theme makes a button switch between the system's theme, light and dark.
export function theme(button) {
  const themes = ['system', 'light', 'dark']
  const stored = () => { try { return localStorage.getItem('theme') } catch { return null } }
  const set = name => {
    if (name === 'system') delete document.documentElement.dataset.theme
    else document.documentElement.dataset.theme = name
    button.textContent = 'Theme: ' + name
    button.value = name
  }
  set(themes.includes(stored()) ? stored() : 'system')
  button.addEventListener('click', () => {
    const next = themes[(themes.indexOf(button.value) + 1) % themes.length]
    try { localStorage.setItem('theme', next) } catch { /* a file without storage */ }
    set(next)
  })
}

// table shows rows [{key, cells, open}] and changes only what differs, so that the focus
// and a selection stay. A cell is a text or {text, class, node}.
export function table(t, heads, rows, empty = 'none') {
  if (!t.tBodies.length) {
    t.append(element('thead', {}, element('tr')), element('tbody'))
    t.known = new Map()
  }
  const head = JSON.stringify(heads.map(h => [h.text ?? h, h.sort]))
  if (t.head !== head) {
    t.head = head
    t.tHead.rows[0].replaceChildren(...heads.map(h => element('th', { class: h.class, 'aria-sort': h.sort }, h.click ? element('button', { type: 'button', click: h.click }, h.text) : h.text ?? h)))
  }
  if (!rows.length) rows = [{ key: '', cells: [{ text: empty, class: 'muted' }] }]
  const body = t.tBodies[0], known = new Map()
  rows.forEach((row, i) => {
    const shown = t.known.get(row.key) || { tr: element('tr'), cells: [] }
    known.set(row.key, shown)
    shown.open = row.open
    if (row.open && !shown.tr.hasAttribute('tabindex')) {
      shown.tr.tabIndex = 0
      shown.tr.addEventListener('click', () => shown.open())
      shown.tr.addEventListener('keydown', e => {
        if (e.key !== 'Enter') return
        e.preventDefault() // or the key also presses what then has the focus
        shown.open()
      })
    }
    row.cells.forEach((c, j) => cell(shown, j, c))
    if (body.rows[i] !== shown.tr) body.insertBefore(shown.tr, body.rows[i] || null)
  })
  while (body.rows.length > rows.length) body.lastChild.remove()
  t.known = known
}

function cell(row, j, c) {
  const text = String(c?.text ?? (typeof c === 'object' ? '' : c) ?? ''), kind = c?.class || '', key = kind + '\n' + text
  if (row.cells[j] === key && !c?.node) return
  row.cells[j] = key
  const td = row.tr.cells[j] || row.tr.appendChild(element('td'))
  td.className = kind
  if (c?.node) td.replaceChildren(c.node)
  else td.textContent = text
}

// steps returns round numbers from min to max, about as many as asked for.
function steps(min, max, count, sizes = [1, 2, 5, 10]) {
  const raw = (max - min) / count || 1, power = 10 ** Math.floor(Math.log10(raw))
  const step = power * sizes.find(s => s * power >= raw - 1e-12)
  const all = []
  for (let v = Math.ceil(min / step - 1e-9) * step; v <= max + step * 1e-9; v += step) all.push(+v.toPrecision(12))
  return all
}

const clockSteps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400]

function clockTicks(min, max, count) {
  const step = 1000 * (clockSteps.find(s => s * 1000 >= (max - min) / count) || 86400)
  const all = []
  for (let v = Math.ceil(min / step) * step; v <= max; v += step) all.push(v)
  return all
}

// Margins in pixels. The left one is the same for all charts, so that their axes align.
const left = 72, bottom = 34, laneHeight = 16, maxLanes = 8

const fewPoints = 24 // a line of at most so many points has dots

const groups = new Map() // charts that show the values of the same moment

// chart draws a chart into a figure, and again on update(chart).
export function chart(figure, spec) {
  const c = { figure, spec, hidden: new Set(), at: null }
  c.values = element('div', { class: 'values', role: 'status', hidden: true })
  c.caption = element('figcaption')
  c.body = element('div')
  figure.replaceChildren(c.caption, c.body, c.values)
  let width = 0
  new ResizeObserver(() => {
    if (figure.clientWidth !== width) render(c)
    width = figure.clientWidth
  }).observe(figure)
  if (spec.group) groups.set(spec.group, [...groups.get(spec.group) || [], c])
  render(c)
  return { update(next) { c.spec = next; render(c) } }
}

function render(c) {
  if (!c.figure.clientWidth) return // not shown: the observer calls again
  const style = getComputedStyle(c.figure)
  c.width = c.figure.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)
  const focused = c.svg && document.activeElement === c.svg
  caption(c)
  const bars = c.spec.kind === 'bars'
  if (!(bars ? c.spec.bars : c.spec.series || []).some(s => bars || s.points.length)) {
    c.svg = null
    c.body.replaceChildren(element('div', { class: 'empty' }, 'no data yet'))
    return hide(c)
  }
  if (bars) drawBars(c)
  else drawSeries(c)
  if (focused) c.svg.focus()
  if (c.at !== null) show(c, c.at)
}

// color is the class of a series; it depends on its position, not on what is hidden.
const color = i => 'c' + (i % 8 + 1)

function caption(c) {
  const names = (c.spec.series || []).map(s => s.name)
  const key = JSON.stringify([c.spec.title, names, [...c.hidden]])
  if (c.captionKey === key) return // keep the focus on a button of the legend
  c.captionKey = key
  const legend = names.length < 2 ? '' : element('span', { class: 'legend' }, names.map((name, i) => element('button', {
    type: 'button', 'aria-pressed': String(!c.hidden.has(name)), click: () => {
      if (!c.hidden.delete(name)) c.hidden.add(name)
      render(c)
      c.caption.querySelectorAll('button')[i].focus()
    },
  }, element('span', { class: 'swatch ' + color(i) }), name)))
  c.caption.replaceChildren(c.spec.title || '', legend)
}

// visible returns the series to draw: points [x, y], and the lower edge of areas.
function visible(c) {
  const all = c.spec.series.map((s, i) => ({ ...s, color: color(i) })).filter(s => !c.hidden.has(s.name))
  if (c.spec.kind !== 'area') return all
  const xs = [...new Set(all.flatMap(s => s.points.map(p => p[0])))].sort((a, b) => a - b)
  const base = new Map(xs.map(x => [x, 0]))
  return all.map(s => {
    const own = new Map(s.points)
    const stacked = xs.map(x => {
      const low = base.get(x), y = own.get(x) || 0
      base.set(x, low + y)
      return [x, low + y, low, y]
    })
    return { ...s, points: stacked }
  })
}

// fraction returns where on an axis a value is, from 0 to 1.
const fraction = (axis, v, min, max) => (axis || {}).log ? Math.max(0, Math.log(v / min) / Math.log(max / min)) : (v - min) / (max - min)

// powers returns the ticks of a logarithmic axis, from at most min to at least max.
function powers(min, max) {
  const all = [], low = Math.floor(Math.log10(min)), high = Math.ceil(Math.log10(max))
  for (let e = low; e <= high; e++) for (const digit of high - low > 3 ? [1] : [1, 2, 5]) all.push(+(digit * 10 ** e).toPrecision(1))
  const from = all.findLastIndex(v => v <= min), to = all.findIndex(v => v >= max)
  return all.slice(Math.max(0, from), to < 0 ? undefined : Math.max(to, from + 1) + 1)
}

// domain returns the ranges of both axes.
function domain(c, series) {
  const x = c.spec.x || {}, y = c.spec.y || {}
  let minX = Infinity, maxX = -Infinity, minY = 0, maxY = y.max || 0
  for (const s of series) {
    for (const [px, py] of s.points) {
      minX = Math.min(minX, px); maxX = Math.max(maxX, px)
      if (py !== null) { minY = Math.min(minY, py); maxY = Math.max(maxY, py) }
    }
  }
  const least = i => Math.min(...series.flatMap(s => s.points.map(p => p[i])).filter(v => v > 0)) // what a logarithm exists of
  if (x.log) minX = least(0)
  if (y.log) minY = Number.isFinite(least(1)) ? least(1) : 1
  minX = x.min ?? (Number.isFinite(minX) ? minX : 0)
  maxX = Math.max(x.max ?? (Number.isFinite(maxX) ? maxX : 1), minX + 1e-9)
  if (maxY <= minY) maxY = minY + 1
  if (y.log) {
    const ticks = powers(minY, maxY)
    return { minX, maxX, minY: ticks[0], maxY: ticks.at(-1), ticks }
  }
  const ticks = steps(minY, maxY * 1.02, 4)
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : maxY
  if (ticks.at(-1) < maxY) ticks.push(+(ticks.at(-1) + step).toPrecision(12))
  return { minX, maxX, minY, maxY: ticks.at(-1), ticks }
}

function drawSeries(c) {
  const series = visible(c), d = domain(c, series), time = (c.spec.x || {}).time
  const svg = element('svg', {
    tabindex: 0, role: 'group', 'aria-roledescription': 'chart',
    'aria-label': (c.spec.title || 'chart') + ': ' + series.map(s => s.name).join(', ') + '. Arrow keys show values.',
  })
  c.svg = svg
  c.body.replaceChildren(svg)
  const events = place(c, d, svg, time)
  const height = c.spec.height || 180, top = 24 + Math.max(0, events.lanes - 1) * laneHeight, end = top + height
  const x = v => left + fraction(c.spec.x, v, d.minX, d.maxX) * (c.width - left - events.right)
  const y = v => end - fraction(c.spec.y, v, d.minY, d.maxY) * height
  Object.assign(c, { series, x, y, top, end, right: c.width - events.right, xs: [...new Set(series.flatMap(s => s.points.map(p => p[0])))].sort((a, b) => a - b), placed: events.all })
  svg.setAttribute('viewBox', `0 0 ${c.width} ${end + bottom}`)
  svg.setAttribute('height', end + bottom)
  svg.append(axes(c, d, time), ...events.all.flatMap(e => mark(c, e)), ...series.map(s => line(c, s)))
  c.cross = element('g', {})
  svg.append(c.cross)
  listen(c)
}

function axes(c, d, time) {
  const g = element('g'), unit = (c.spec.y || {}).unit || ''
  for (const v of d.ticks) {
    g.append(element('line', { class: v === Math.max(0, d.minY) ? 'axis' : 'grid', x1: left, x2: c.right, y1: c.y(v), y2: c.y(v) }),
      element('text', { x: left - 8, y: c.y(v) + 4, 'text-anchor': 'end' }, short(v, unit).join('')))
  }
  g.append(element('text', { x: left - 8, y: c.top - 12, 'text-anchor': 'end' }, unit))
  const count = Math.max(2, (c.right - left) / 90)
  const log = (c.spec.x || {}).log && powers(d.minX, d.maxX).filter(v => v >= d.minX && v <= d.maxX)
  for (const v of log || (time ? clockTicks(d.minX, d.maxX, count) : steps(d.minX, d.maxX, count))) {
    g.append(element('line', { class: 'axis', x1: c.x(v), x2: c.x(v), y1: c.end, y2: c.end + 4 }),
      element('text', { x: c.x(v), y: c.end + 17, 'text-anchor': 'middle' }, time ? clock(v) : format(v, (c.spec.x || {}).unit)))
  }
  const label = (c.spec.x || {}).label
  if (label) g.append(element('text', { x: c.right, y: c.end + 31, 'text-anchor': 'end' }, label))
  return g
}

// place assigns lanes above the plot to the labels of events. A label is on the right of
// its line; on charts with the time of day, which grow on the right, on the left. The lane
// of a label is above those of all events that it reaches, so that no label overlaps
// another one or a line. Labels that find no place are shown with the values only.
function place(c, d, svg, time) {
  const events = (c.spec.events || []).filter(e => e.at >= d.minX && e.at <= d.maxX)
  const probe = element('text', { class: 'event' })
  svg.append(probe)
  const measured = events.map(e => {
    probe.textContent = e.name
    return { ...e, width: (probe.getComputedTextLength() || e.name.length * 7) + 6 }
  })
  probe.remove()
  const scale = right => v => left + fraction(c.spec.x, v, d.minX, d.maxX) * (c.width - left - right)
  let right = 16
  for (let i = 0; i < 3 && !time; i++) { // room for the last labels
    right = Math.min(c.width / 4, Math.max(16, ...measured.map(e => scale(right)(e.at) + e.width + right - c.width)))
  }
  const x = scale(right), placed = []
  measured.sort((a, b) => time ? a.at - b.at : b.at - a.at)
  for (const e of measured) {
    e.x = x(e.at)
    const [from, to] = time ? [e.x - e.width, e.x] : [e.x, e.x + e.width]
    const reached = placed.filter(p => p.lane >= 0 && (time ? p.x > from - 4 : p.x < to + 4))
    e.lane = Math.max(-1, ...reached.map(p => p.lane)) + 1
    if (e.lane >= maxLanes || from < (time ? left : -1) || to > c.width + 1) e.lane = -1
    e.anchor = time ? 'end' : 'start'
    placed.push(e)
  }
  return { all: placed, lanes: Math.max(0, ...placed.map(e => e.lane + 1)), right }
}

function mark(c, e) {
  const kind = 'event' + (e.bad ? ' bad' : ''), y = c.top - 8 - Math.max(e.lane, 0) * laneHeight
  const parts = [element('line', { class: kind, x1: e.x, x2: e.x, y1: e.lane < 0 ? c.top : y - 9, y2: c.end })]
  if (e.lane >= 0) parts.push(element('text', { class: kind, x: e.x + (e.anchor === 'end' ? -4 : 4), y, 'text-anchor': e.anchor }, e.name))
  return parts
}

function line(c, s) {
  const at = ([px, py]) => c.x(px).toFixed(1) + ',' + c.y(py).toFixed(1)
  if (c.spec.kind === 'area') {
    const back = s.points.map(p => at([p[0], p[2]])).reverse()
    return element('path', { class: 'area series ' + s.color, d: 'M' + [...s.points.map(at), ...back].join('L') + 'Z' })
  }
  let d = '', pen = 'M'
  for (const p of s.points) {
    if (p[1] === null) { pen = 'M'; continue } // a gap
    d += pen + at(p)
    pen = 'L'
  }
  const path = element('path', { class: 'series ' + s.color + (s.dashed ? ' dashed' : ''), d })
  if (s.dashed || s.points.length > fewPoints) return path
  const dots = s.points.filter(p => p[1] !== null).map(p => element('circle', { class: 'dot ' + s.color, cx: c.x(p[0]), cy: c.y(p[1]), r: 2.5 }))
  return element('g', {}, path, dots)
}

function listen(c) {
  const peers = () => groups.get(c.spec.group) || [c]
  const all = x => { for (const p of peers()) x === null ? hide(p) : show(p, x) }
  c.svg.addEventListener('pointermove', e => {
    const px = (e.clientX - c.svg.getBoundingClientRect().left) * c.width / c.svg.clientWidth
    all(c.xs.reduce((best, v) => Math.abs(c.x(v) - px) < Math.abs(c.x(best) - px) ? v : best, c.xs[0]))
  })
  c.svg.addEventListener('pointerleave', () => all(null))
  c.svg.addEventListener('blur', () => all(null))
  c.svg.addEventListener('keydown', e => {
    const last = c.xs.length - 1, now = c.at === null ? -1 : c.xs.indexOf(c.at), by = e.shiftKey ? 10 : 1
    const to = { ArrowLeft: now < 0 ? last : now - by, ArrowRight: now + by, Home: 0, End: last }[e.key]
    if (e.key === 'Escape') return all(null)
    if (to === undefined) return
    e.preventDefault()
    all(c.xs[Math.min(last, Math.max(0, to))])
  })
}

function hide(c) {
  c.at = null
  c.values.hidden = true
  if (c.cross) c.cross.replaceChildren()
}

// show shows the values next to x: a line, dots, and a box of text.
function show(c, x) {
  if (!c.svg || !c.xs || !c.xs.length) return
  x = c.xs.reduce((best, v) => Math.abs(v - x) < Math.abs(best - x) ? v : best, c.xs[0])
  c.at = x
  const px = c.x(x), unit = (c.spec.y || {}).unit
  c.cross.replaceChildren(element('line', { class: 'cross', x1: px, x2: px, y1: c.top, y2: c.end }))
  const rows = []
  for (const s of c.series) {
    const p = s.points.find(p => p[0] === x)
    if (!p || p[1] === null) continue
    c.cross.append(element('circle', { class: 'dot ' + s.color, cx: px, cy: c.y(p[1]), r: 3.5 }))
    rows.push(element('div', {}, element('span', {}, element('span', { class: 'swatch ' + s.color }), s.name), element('b', {}, format(p[3] ?? p[1], unit))))
  }
  if (c.spec.kind === 'area') rows.reverse() // as the areas are stacked
  const near = c.placed.filter(e => Math.abs(e.x - px) < 8).map(e => element('div', { class: e.bad ? 'bad' : '' }, e.name + (e.detail ? ': ' + e.detail : '')))
  const head = (c.spec.x || {}).time ? clock(x) : format(x, (c.spec.x || {}).unit)
  c.values.replaceChildren(element('b', {}, head), ...rows, ...near)
  c.values.hidden = false
  const offset = c.svg.getBoundingClientRect(), box = c.figure.getBoundingClientRect()
  const at = offset.left - box.left + px
  const beyond = at + 14 + c.values.offsetWidth > c.figure.clientWidth ? at - 14 - c.values.offsetWidth : at + 14
  c.values.style.transform = `translate(${Math.max(0, Math.round(beyond))}px, ${Math.round(offset.top - box.top + c.top)}px)`
}

// shorten cuts a text that is wider than room; the pointer shows all of it.
function shorten(text, whole, room) {
  if (text.getComputedTextLength() <= room) return
  let n = Math.floor(whole.length * room / text.getComputedTextLength())
  do text.textContent = whole.slice(0, n--) + '…'
  while (n > 0 && text.getComputedTextLength() > room)
  text.append(element('title', {}, whole))
}

// drawBars draws a row for each bar: its name, the bar, its value, and its goal as a line.
function drawBars(c) {
  const bars = c.spec.bars, axis = c.spec.y || {}, row = 26
  const svg = element('svg', { role: 'img', height: bars.length * row + 8, viewBox: `0 0 ${c.width} ${bars.length * row + 8}`,
    'aria-label': (c.spec.title || 'chart') + ': ' + bars.map(b => b.name + ' ' + format(b.value, axis.unit)).join(', ') })
  c.svg = svg
  c.body.replaceChildren(svg)
  const names = bars.map((b, i) => element('text', { class: 'name', x: 0, y: i * row + 21 }, b.name))
  const texts = bars.map((b, i) => element('text', { class: 'value', y: i * row + 21 }, format(b.value, axis.unit) + (b.note ? '  ' + b.note : '')))
  svg.append(...names, ...texts)
  const widest = all => Math.max(...all.map(t => t.getComputedTextLength()))
  const start = Math.min(widest(names) + 12, c.width * .45), room = Math.max(40, c.width - start - widest(texts) - 16)
  names.forEach((text, i) => shorten(text, bars[i].name, start - 12))
  const top = Math.max(...bars.flatMap(b => [b.value, b.goal || 0]), axis.max || 0) || 1
  const low = Math.min(...bars.flatMap(b => [b.value, b.goal || b.value]).filter(v => v > 0)) / 2
  const size = v => axis.log ? v <= low ? 0 : Math.log(v / low) / Math.log(top / low) * room : Math.max(0, v / top * room)
  bars.forEach((b, i) => {
    const y = i * row + 8
    svg.append(element('rect', { class: 'bar ' + (b.bad ? 'bad' : 'c1'), x: start, y, width: Math.max(1, size(b.value)), height: row - 8, rx: 2 }))
    const end = size(b.value) + 8, goal = size(b.goal || 0)
    const covered = goal > end - 12 && goal < end + texts[i].getComputedTextLength() + 4
    texts[i].setAttribute('x', start + (covered ? goal + 8 : end))
    if (b.goal) {
      svg.append(element('line', { class: 'goal', x1: start + size(b.goal), x2: start + size(b.goal), y1: y - 3, y2: y + row - 5 },
        element('title', {}, 'goal ' + format(b.goal, axis.unit))))
    }
  })
}

// Charts of a self-contained file.
for (const figure of document.querySelectorAll('figure.chart')) {
  const json = figure.querySelector('script[type="application/json"]')
  if (json) chart(figure, JSON.parse(json.textContent))
}
if (document.body.classList.contains('report')) {
  const button = element('button', { class: 'theme', type: 'button' })
  document.body.prepend(button)
  theme(button)
}
