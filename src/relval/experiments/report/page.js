// Draws the pictures of a report from the numbers in the page, without any library.

// What the pictures of a study share: its variants, how they look, and which of them are hidden.

function makeStudy({ variants, charts }) {
  const hidden = new Set();
  const looks = Object.fromEntries(variants.map((variant) => [variant.name, variant]));
  const names = variants.map((variant) => variant.name);
  const shown = () => names.filter((name) => !hidden.has(name));
  const colour = (name) => `var(--c${looks[name].colour})`;
  const dashes = (name) => looks[name].dashes;

  // A short piece of a variant's line, to be set beside its name.
  function sample(name) {
    const svg = element("svg", { class: "sample", width: 22, height: 8, "aria-hidden": true });
    element("line", { x1: 0, x2: 22, y1: 4, y2: 4, stroke: colour(name), "stroke-width": 3, "stroke-dasharray": dashes(name) }, svg);
    return svg;
  }
  return { names, charts, hidden, shown, colour, dashes, sample };
}

// Lines with bands: hover to read, drag to zoom, double-click to see all again.

let clips = 0;

function lines(figure, chart, { shown, colour, dashes, sample }) {
  const clip = `clip-${clips++}`;
  const height = 220, left = 46, right = 10, top = 10, bottom = 34;
  let zoom = null, pressed = null;
  const svg = element("svg", { role: "img", "aria-label": chart.label, height }, figure);
  const reset = document.createElement("button");
  reset.className = "reset";
  reset.textContent = "show all";
  reset.hidden = true;
  figure.appendChild(reset);
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  figure.appendChild(tip);
  let place = null;

  function draw() {
    const width = svg.clientWidth || 320;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const [x0, x1] = zoom || [chart.x[0], chart.x[chart.x.length - 1]];
    const seen = chart.x.map((x) => x >= x0 && x <= x1);
    const values = [];
    for (const variant of shown())
      (chart.lines[variant] || []).forEach((point, k) => point && seen[k] && values.push(point[1], point[2]));
    let low = Math.min(...values), high = Math.max(...values);
    if (!values.length) [low, high] = [0, 1];
    if (high === low) [low, high] = [low - 0.5, high + 0.5];
    const pad = 0.05 * (high - low);
    [low, high] = [low - pad, high + pad];
    const X = (x) => left + ((x - x0) / (x1 - x0 || 1)) * (width - left - right);
    const Y = (y) => top + ((high - y) / (high - low)) * (height - top - bottom);
    place = { X, Y, x0, x1, width };

    for (const y of ticks(low, high, 4)) {
      element("line", { class: "grid", x1: left, x2: width - right, y1: Y(y), y2: Y(y) }, svg);
      text(number(y), { x: left - 6, y: Y(y) + 4, "text-anchor": "end" }, svg);
    }
    const marks = ticks(x0, x1, Math.max(2, Math.floor(width / 75)));
    for (const x of [...marks.filter((mark) => X(x1) - X(mark) > 40), x1])
      text(number(x), { x: X(x), y: height - bottom + 15, "text-anchor": "middle" }, svg);
    text(chart.x_label, { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, svg);

    const clipping = element("clipPath", { id: clip }, svg);
    element("rect", { x: left, y: 0, width: Math.max(0, width - left - right), height: height - bottom }, clipping);
    const inside = element("g", { "clip-path": `url(#${clip})` }, svg);
    for (const variant of shown()) {
      const points = (chart.lines[variant] || [])
        .map((point, k) => point && { x: X(chart.x[k]), y: Y(point[0]), low: Y(point[1]), high: Y(point[2]) })
        .filter(Boolean);
      if (!points.length) continue;
      const group = element("g", { "data-variant": variant, style: `color: ${colour(variant)}` }, inside);
      const path = (list, key) => list.map((p) => `${p.x.toFixed(1)},${p[key].toFixed(1)}`).join("L");
      const band = `M${path(points, "high")}L${path([...points].reverse(), "low")}Z`;
      element("path", { d: band, fill: "currentColor", opacity: 0.16 }, group);
      const line = { d: `M${path(points, "y")}`, fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-linejoin": "round", "stroke-dasharray": dashes(variant) };
      element("path", line, group);
    }
  }

  function nearest(x) {
    let best = 0;
    chart.x.forEach((value, k) => { if (Math.abs(value - x) < Math.abs(chart.x[best] - x)) best = k; });
    return best;
  }

  function where(event) {
    const box = svg.getBoundingClientRect();
    const inside = Math.min(Math.max(event.clientX - box.left, left), place.width - right);
    return place.x0 + ((inside - left) / (place.width - left - right)) * (place.x1 - place.x0);
  }

  function point(event) {
    svg.querySelectorAll(".cursor, .dot, .selection").forEach((mark) => mark.remove());
    const x = where(event), k = nearest(x), at = place.X(chart.x[k]);
    if (pressed !== null && Math.abs(place.X(x) - place.X(pressed)) > 4) {
      const [from, to] = [pressed, x].sort((a, b) => a - b).map(place.X);
      element("rect", { class: "selection", x: from, y: top, width: to - from, height: height - top - bottom }, svg);
    }
    element("line", { class: "cursor", x1: at, x2: at, y1: top, y2: height - bottom }, svg);
    tip.replaceChildren();
    const head = document.createElement("div");
    head.textContent = `${chart.x_label}: ${number(chart.x[k])}`;
    tip.appendChild(head);
    for (const variant of shown()) {
      const value = (chart.lines[variant] || [])[k];
      if (!value) continue;
      const mark = { class: "dot", cx: at, cy: place.Y(value[0]), r: 3.5, fill: colour(variant) };
      element("circle", mark, svg);
      const row = document.createElement("div"), mean = document.createElement("b");
      mean.textContent = number(value[0]);
      const spread = value[1] === value[2] ? "" : ` (${number(value[1])} to ${number(value[2])})`;
      row.append(sample(variant), `${variant} `, mean, spread);
      tip.appendChild(row);
    }
    tip.hidden = false;
    const box = figure.getBoundingClientRect(), wide = tip.offsetWidth + 8;
    const fitsAfter = box.right + wide < document.documentElement.clientWidth, fitsBefore = box.left > wide;
    tip.style.left = `${fitsAfter ? box.width + 8 : fitsBefore ? -wide : 0}px`;
    tip.style.top = `${fitsAfter || fitsBefore ? 0 : box.height + 8}px`;
  }

  function leave() {
    tip.hidden = true;
    pressed = null;
    svg.querySelectorAll(".cursor, .dot, .selection").forEach((mark) => mark.remove());
  }

  function see(range) {
    zoom = range;
    reset.hidden = zoom === null;
    leave();
    draw();
  }

  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", (event) => { pressed = where(event); point(event); });
  svg.addEventListener("pointerup", (event) => {
    const range = [pressed, where(event)].sort((a, b) => a - b);
    const wide = pressed !== null && Math.abs(place.X(range[1]) - place.X(range[0])) > 12;
    pressed = null;
    if (wide && nearest(range[1]) - nearest(range[0]) > 1) see(range);
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("dblclick", () => see(null));
  reset.addEventListener("click", () => see(null));
  return { draw };
}

// Points with intervals, a row for each variant.

function intervals(figure, chart, { charts, shown, colour, dashes }) {
  const row = 26, top = 4, bottom = 24;
  const alike = Object.values(charts).filter((other) => other.axis === chart.axis);
  const svg = element("svg", { role: "img", "aria-label": chart.label }, figure);
  function draw() {
    const width = svg.clientWidth || 320;
    const names = shown().filter((variant) => chart.rows[variant]);
    const height = top + bottom + row * Math.max(1, names.length);
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    const left = 14 + 7 * Math.max(4, ...names.map((name) => name.length)), right = 46;
    const ends = alike.flatMap(({ rows }) => names.flatMap((name) => rows[name].slice(1)));
    if (chart.mark !== null) ends.push(chart.mark);
    let low = Math.min(...ends), high = Math.max(...ends);
    if (high <= low) [low, high] = [low - 0.5, high + 0.5];
    const step = roundStep((high - low) / 3);
    [low, high] = [step * Math.floor(low / step + 1e-9), step * Math.ceil(high / step - 1e-9)];
    const X = (x) => left + ((x - low) / (high - low)) * (width - left - right);
    for (const x of multiples(step, low, high)) {
      element("line", { class: "grid", x1: X(x), x2: X(x), y1: top, y2: height - bottom }, svg);
      text(number(x), { x: X(x), y: height - 8, "text-anchor": "middle" }, svg);
    }
    if (chart.mark !== null)
      element("line", { class: "cursor", x1: X(chart.mark), x2: X(chart.mark), y1: top, y2: height - bottom }, svg);
    names.forEach((name, k) => {
      const [value, from, to] = chart.rows[name], y = top + row * (k + 0.5);
      const group = element("g", { "data-variant": name, style: `color: ${colour(name)}` }, svg);
      const bar = { x1: X(from), x2: X(to), y1: y, y2: y, stroke: "currentColor", "stroke-width": 8, "stroke-linecap": "round", opacity: 0.35 };
      if (to > from) element("line", bar, group);
      const fill = dashes(name) ? "var(--panel)" : "currentColor";
      element("circle", { cx: X(value), cy: y, r: 4.5, fill, stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": dashes(name) }, group);
      text(name, { class: "name", x: 4, y: y + 4 }, group);
      text(number(value), { x: width - 4, y: y + 4, "text-anchor": "end" }, group);
      const spread = to > from ? `, 95%: ${number(from)} to ${number(to)}` : "";
      element("title", {}, group).textContent = `${name}: ${number(value)}${spread}`;
    });
  }
  return { draw };
}

// A section with its pictures, and the legend that shows and hides variants in them.

function show(section, study) {
  const pictures = [...section.querySelectorAll("figure[data-chart]")].map((figure) => {
    const kind = figure.classList.contains("lines") ? lines : intervals;
    return kind(figure, study.charts[figure.dataset.chart], study);
  });
  const draw = () => pictures.forEach((picture) => picture.draw());
  for (const name of study.names) {
    const button = document.createElement("button");
    button.append(study.sample(name), name);
    button.setAttribute("aria-pressed", "true");
    button.title = "show or hide in all pictures";
    button.addEventListener("click", () => {
      if (!study.hidden.delete(name)) study.hidden.add(name);
      button.setAttribute("aria-pressed", String(!study.hidden.has(name)));
      draw();
    });
    section.querySelector(".legend").appendChild(button);
  }
  return { draw };
}

const sections = [...document.querySelectorAll("section.study")];
const studies = sections.map((section, k) => show(section, makeStudy(data[k])));
let width = 0;
new ResizeObserver(() => {
  if (document.body.clientWidth === width) return;
  width = document.body.clientWidth;
  studies.forEach((study) => study.draw());
}).observe(document.body);
