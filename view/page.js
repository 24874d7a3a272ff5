/* Every page ends with this; without it a page shows the same, and a reader scrolls. */
'use strict'

/* The numbers of a chart at the place where the pointer is, from the tables behind it. */
for (const plot of document.querySelectorAll('.plot')) {
  const svg = plot.querySelector('svg'), figure = plot.parentElement, says = figure.querySelector('.hover')
  const [left, right, top, bottom] = plot.dataset.place.split(' ').map(Number)
  const [low, high, log] = plot.dataset.x.split(' ').map(Number)
  const cursor = svg.appendChild(document.createElementNS(svg.namespaceURI, 'path'))
  const tables = [...figure.querySelectorAll('details table')].map(t => ({
    name: t.caption.textContent,
    x: t.tHead.rows[0].cells[0].textContent,
    rows: [...t.tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent.trim()))
  })).filter(t => t.rows.length)
  const nearest = (rows, x) =>
    rows.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a)
  const text = (name, row) => name + ' ' + row[1] + (row.length > 2 ? ' (' + row[2] + ' to ' + row[3] + ')' : '')
  cursor.setAttribute('class', 'cursor')
  svg.onpointermove = e => {
    const box = svg.getBoundingClientRect()
    const at = (e.clientX - box.left) / box.width * svg.viewBox.baseVal.width
    const share = Math.min(1, Math.max(0, (at - left) / (right - left)))
    const x = log ? low * Math.pow(high / low, share) : low + (high - low) * share
    const rows = tables.map(t => nearest(t.rows, x))
    says.textContent = !rows.length ? '' : tables[0].x + ' ' + rows[0][0] + ': '
      + tables.map((t, i) => text(t.name, rows[i])).join(' · ')
    const place = left + share * (right - left)
    cursor.setAttribute('d', 'M' + place.toFixed(1) + ' ' + top + 'V' + bottom)
  }
}

/* The steps of a sequence, one at a time: by button, slider and key, or played. */
function step_through(steps) {
  const nav = document.createElement('nav'), button = name => {
    const made = nav.appendChild(document.createElement('button'))
    made.textContent = name
    return made
  }
  const back = button('Back'), next = button('Next'), play = button('Play')
  const slider = nav.appendChild(document.createElement('input')), last = steps.length - 1
  let at = 0, timer = 0
  function show(i) {
    at = Math.max(0, Math.min(last, i))
    steps.forEach((step, k) => { step.hidden = k !== at })
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
  slider.type = 'range'
  slider.max = last
  slider.setAttribute('aria-label', 'step')
  steps[0].before(nav)
  show(0)
}

const steps = [...document.querySelectorAll('.step')]
if (steps.length > 1) step_through(steps)
