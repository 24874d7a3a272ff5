/* Every page ends with this; without it a page shows the same, and a reader scrolls. */
'use strict'

/* The numbers of a figure at the place where the pointer is, from the table behind it. */
for (const figure of document.querySelectorAll('figure.curves')) {
  const svg = figure.querySelector('svg'), says = figure.querySelector('.hover')
  const plot = svg.querySelector('#plot rect'), of = name => +plot.getAttribute(name)
  const left = of('x'), right = left + of('width'), top = of('y'), bottom = top + of('height')
  const low = +figure.dataset.low, high = +figure.dataset.high
  const cursor = svg.appendChild(document.createElementNS(svg.namespaceURI, 'path'))
  const tables = [...figure.querySelectorAll('table')].map(t => ({
    name: t.caption.textContent + ', ' + t.tHead.rows[0].cells[0].textContent,
    rows: [...t.tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent.trim()))
  }))
  const nearest = (rows, step) =>
    rows.reduce((a, b) => Math.abs(b[0] - step) < Math.abs(a[0] - step) ? b : a)
  const text = (name, row) => name + ' ' + row[0]
    + (row.length === 3 ? ' (epoch ' + row[2] + ')' : '') + ': ' + row[1]
    + (row.length > 3 ? ' (' + row[2] + ' to ' + row[3] + ')' : '')
  cursor.setAttribute('class', 'cursor')
  svg.onpointermove = e => {
    const box = svg.getBoundingClientRect()
    const at = (e.clientX - box.left) / box.width * svg.viewBox.baseVal.width
    const step = low + (high - low) * (at - left) / (right - left)
    says.textContent = tables.map(t => text(t.name, nearest(t.rows, step))).join(' · ')
    const x = Math.min(right, Math.max(left, at)).toFixed(1)
    cursor.setAttribute('d', 'M' + x + ' ' + top + 'V' + bottom)
  }
}

/* Rounds of an allreduce, one at a time: by button, slider and key, or played. */
function step_through(rounds, nav) {
  const [back, next, play] = nav.children, slider = nav.querySelector('input'), last = rounds.length - 1
  let at = 0, timer = 0
  function show(i) {
    at = Math.max(0, Math.min(last, i))
    rounds.forEach((round, k) => { round.hidden = k !== at })
    slider.value = at
    back.disabled = at === 0
    next.disabled = at === last
    if (next.disabled) stop()
  }
  function stop() {
    clearInterval(timer)
    timer = 0
    play.textContent = 'Play'
  }
  function go(i) {
    stop()
    show(i)
  }
  back.onclick = () => go(at - 1)
  next.onclick = () => go(at + 1)
  slider.oninput = () => go(+slider.value)
  play.onclick = () => {
    if (timer) return stop()
    if (at === last) show(0)
    play.textContent = 'Pause'
    timer = setInterval(() => show(at + 1), 1500)
  }
  addEventListener('keydown', e => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[e.key]
    if (to === undefined || e.altKey || e.ctrlKey || e.metaKey) return
    e.preventDefault()
    go(to)
  })
  slider.max = last
  nav.hidden = last < 1
  show(1)
}

const nav = document.querySelector('nav')
if (nav) step_through([...document.querySelectorAll('.round')], nav)
