// Shows a game state by state, and the critic's differences between any two of its states.

const last = data.frames.length - 1;
const starts = [0, ...data.ends.flatMap((end, step) => (end ? [step + 1] : []))];
const at = { i: 0, j: 0, anchor: "anchored" };  // what is shown
const kept = { i: 0, j: 0 };  // what is shown while nothing is pointed at
const $ = (name) => document.getElementById(name);
const webp = (text) => `data:image/webp;base64,${text}`;
const within = (step) => Math.min(Math.max(step, 0), last);
const episode = (step) => starts.filter((start) => start <= step).length;
const signed = (value, written = number(value)) => (value > 0 ? "+" : "") + written;

// So many decimals show this many digits of the range of all values, and no more than there are.
function decimals(values, digits) {
  const largest = Math.max(...values.map(Math.abs)) || 1;
  const range = Math.max(...values) - Math.min(...values) || largest;
  const place = (size) => Math.floor(Math.log10(size));
  return Math.max(Math.min(digits - 1 - place(range), 6 - place(largest)), 0);
}

const bytes = Uint8Array.from(atob(data.differences.upper), (letter) => letter.charCodeAt(0));
const upper = new DataView(bytes.buffer);

function difference(i, j) {
  if (i === j) return 0;
  if (i > j) return -difference(j, i);
  const place = i * (last + 1) - (i * (i + 1)) / 2 + j - i - 1;
  return data.differences.unit * upper.getInt16(2 * place, true);
}

const pairs = data.frames.map((_, i) => data.frames.map((_, j) => difference(i, j)));
const largest = Math.max(...pairs.map((row) => Math.max(...row)));
const gapText = (gap) => signed(gap, gap.toFixed(decimals([0, largest], 4)));

// Curves over the steps, one under the other on the same axis.

const left = 46, right = 10;

function curves() {
  const gap = 20, top = 28, bottom = 34;
  const svg = element("svg", { role: "img", "aria-label": "values, rewards and advantages by step" }, $("curves"));
  const panels = [
    { name: "value", height: 180, marks: 4, of: () => data.values[at.anchor], draw: line },
    { name: "reward", height: 56, marks: 2, of: () => data.rewards, draw: stems("--c2", "--c3") },
    { name: "advantage", height: 110, marks: 3, of: () => data.advantages[at.anchor], draw: stems("--c1", "--c0") },
  ];
  let X, cursors, height;

  function line(group, values, Y) {
    starts.forEach((start, k) => {
      const end = starts[k + 1] ?? last + 1;
      const points = values.slice(start, end).map((value, n) => `${X(start + n).toFixed(1)},${Y(value).toFixed(1)}`);
      const path = { d: `M${points.join("L")}`, fill: "none", stroke: "var(--c5)", "stroke-width": 1.8, "stroke-linejoin": "round", "stroke-linecap": "round" };
      element("path", path, group);
    });
  }

  function stems(up, down) {
    return (group, values, Y) => {
      const width = Math.min(Math.max(0.75 * (X(1) - X(0)), 1), 6);
      for (const [colour, sign] of [[up, 1], [down, -1]]) {
        const parts = values.map((value, step) =>
          value * sign > 0 ? `M${X(step).toFixed(1)},${Y(0).toFixed(1)}V${Y(value).toFixed(1)}` : "");
        element("path", { d: parts.join(""), stroke: `var(${colour})`, "stroke-width": width }, group);
      }
    };
  }

  function range(panel) {
    const values = panel.of();
    let [low, high] = [Math.min(...values), Math.max(...values)];
    if (panel.draw !== line) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
    if (high === low) [low, high] = [low - 1, high + 1];
    const pad = 0.06 * (high - low);
    return [low - pad, high + pad];
  }

  function draw() {
    const width = svg.clientWidth || 320;
    height = top - gap + bottom + panels.reduce((sum, panel) => sum + panel.height + gap, 0);
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    X = (step) => left + (step / last) * (width - left - right);
    starts.forEach((start, k) => {
      if (k % 2 === 0) return;
      const [from, to] = [X(start), X(starts[k + 1] ?? last)];
      element("rect", { class: "band", x: from, y: 0, width: to - from, height: height - bottom }, svg);
    });
    let from = top;
    for (const panel of panels) {
      const [low, high] = range(panel), above = from;
      const Y = (value) => above + ((high - value) / (high - low)) * panel.height;
      const marks = ticks(low, high, panel.marks);
      for (const mark of marks) {
        element("line", { class: "grid", x1: left, x2: width - right, y1: Y(mark), y2: Y(mark) }, svg);
        const label = String(+mark.toFixed(decimals(marks, 3)));
        text(label, { x: left - 6, y: Y(mark) + 4, "text-anchor": "end" }, svg);
      }
      text(panel.name, { class: "name", x: left + 8, y: from - 6 }, svg);
      panel.draw(element("g", { id: `curve-${panel.name}` }, svg), panel.of(), Y);
      if (panel.draw === line) panel.Y = Y;
      from += panel.height + gap;
    }
    for (const step of ticks(0, last, Math.max(2, Math.floor(width / 75))).filter(Number.isInteger))
      text(String(step), { x: X(step), y: height - bottom + 15, "text-anchor": "middle" }, svg);
    text("step", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, svg);
    cursors = element("g", {}, svg);
    mark();
  }

  function mark() {
    cursors.replaceChildren();
    const [values] = panels;
    for (const [name, kind] of [["j", "other"], ["i", "at"]]) {
      const x = X(at[name]), y = values.Y(values.of()[at[name]]);
      element("line", { class: kind, x1: x, x2: x, y1: 17, y2: height - bottom }, cursors);
      text(name, { class: "mark", x, y: 11, "text-anchor": "middle" }, cursors);
      element("circle", { cx: x, cy: y, r: 4, fill: kind === "at" ? "var(--ink)" : "var(--panel)", stroke: "var(--ink)" }, cursors);
    }
  }

  const step = (x) => Math.round(((x - left) / (svg.clientWidth - left - right)) * last);
  point(svg, (x, y) => [y < height - bottom ? step(x) : NaN, kept.j]);
  return { draw, mark };
}

// All pairs as a picture: rows are states i, columns states j.

function matrix() {
  const top = 8, bottom = 34;
  const svg = element("svg", { role: "img", "aria-label": "differences between all pairs of states" }, $("matrix"));
  let side, cursors;

  function colour(name) {
    const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    return [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  }

  function paint() {
    const [worse, same, better] = ["--c0", "--paper", "--c1"].map(colour);
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = last + 1;
    const context = canvas.getContext("2d"), picture = context.createImageData(last + 1, last + 1);
    let k = 0;
    for (const row of pairs)
      for (const value of row) {
        const share = Math.abs(value) / (largest || 1), end = value > 0 ? better : worse;
        for (let c = 0; c < 3; c++) picture.data[k++] = same[c] + share * (end[c] - same[c]);
        picture.data[k++] = 255;
      }
    context.putImageData(picture, 0, 0);
    return canvas.toDataURL();
  }

  function place(state) {
    return ((state + 0.5) / (last + 1)) * side;
  }

  function draw() {
    side = (svg.clientWidth || 320) - left - right;
    const height = top + side + bottom;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${side + left + right} ${height}`);
    svg.setAttribute("height", height);
    const rendering = side > 2 * last ? "pixelated" : "auto";
    element("image", { href: paint(), x: left, y: top, width: side, height: side, style: `image-rendering: ${rendering}` }, svg);
    for (const start of starts.slice(1)) {
      const edge = (start / (last + 1)) * side;
      element("line", { class: "begin", x1: left, x2: left + side, y1: top + edge, y2: top + edge }, svg);
      element("line", { class: "begin", x1: left + edge, x2: left + edge, y1: top, y2: top + side }, svg);
    }
    for (const step of ticks(0, last, Math.max(2, Math.floor(side / 75))).filter(Number.isInteger)) {
      text(String(step), { x: left + place(step), y: top + side + 15, "text-anchor": "middle" }, svg);
      text(String(step), { x: left - 6, y: top + place(step) + 4, "text-anchor": "end" }, svg);
    }
    text("state j", { x: left + side / 2, y: height - 4, "text-anchor": "middle" }, svg);
    text("state i", { x: 0, y: 0, "text-anchor": "middle", transform: `translate(10 ${top + side / 2}) rotate(-90)` }, svg);
    cursors = element("g", {}, svg);
    mark();
  }

  function mark() {
    cursors.replaceChildren();
    const x = left + place(at.j), y = top + place(at.i);
    element("line", { class: "at", x1: left, x2: left + side, y1: y, y2: y }, cursors);
    element("line", { class: "other", x1: x, x2: x, y1: top, y2: top + side }, cursors);
    element("circle", { cx: x, cy: y, r: 4, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5 }, cursors);
  }

  const state = (pixels) => Math.floor((pixels / side) * (last + 1));
  point(svg, (x, y) => [state(y - top), state(x - left)]);
  return { draw, mark };
}

// Pointing shows two states, a click or tap keeps them; margins are no place, and a swipe scrolls.

function point(svg, states) {
  const pointed = (then) => (event) => {
    const box = svg.getBoundingClientRect();
    const [i, j] = states(event.clientX - box.left, event.clientY - box.top);
    if ([i, j].every((state) => state >= 0 && state <= last)) then(i, j);
    else look();
  };
  const preview = pointed(look);
  svg.addEventListener("pointermove", (event) => { if (!playing || event.buttons) preview(event); });
  svg.addEventListener("pointerdown", preview);
  svg.addEventListener("pointerup", pointed(go));
  svg.addEventListener("pointerleave", () => look());
}

// What is shown of the two states; i is also the step that the game stands at.

let playing = null;
const pictures = [curves(), matrix()];

function look(i = kept.i, j = kept.j) {
  [at.i, at.j] = [i, j];
  show();
}

function go(i, j = at.j) {
  [kept.i, kept.j] = [within(i), within(j)];
  look();
}

function show() {
  const values = data.values[at.anchor], value = values[at.i].toFixed(decimals(values, 4));
  for (const [image, state] of [["frame", at.i], ["first", at.i], ["second", at.j]]) {
    $(image).src = webp(data.frames[state]);
    $(image).alt = `the game in state ${state}`;
  }
  $("scrub").value = $("i").value = at.i;
  $("j").value = at.j;
  $("scrub").setAttribute("aria-valuetext", `step ${at.i}, value ${value}`);
  const acted = at.i < last;
  const rows = {
    step: `${at.i} of ${last}`,
    episode: `${episode(at.i)} of ${starts.length}`,
    value,
    action: acted ? data.actions[at.i] : "none",
    reward: acted ? number(data.rewards[at.i]) : "none",
    advantage: acted ? signed(data.advantages[at.anchor][at.i]) : "none",
    then: ["it goes on", "the episode ends", "it is cut off"][acted ? data.ends[at.i] : 0],
  };
  $("readout").replaceChildren(...Object.entries(rows).map(([name, value]) => {
    const row = document.createElement("div");
    row.append(made("dt", name), made("dd", value));
    row.lastChild.id = `now-${name}`;
    return row;
  }));
  const gap = difference(at.i, at.j);
  const verdict = gap === 0 ? "as good as" : gap > 0 ? "better than" : "worse than";
  $("difference").replaceChildren(`Δ = ${gapText(gap)}`, made("small", `state ${at.i} is ${verdict} state ${at.j}`));
  for (const name of ["i", "j"]) $(name).setAttribute("aria-valuetext", `state ${at[name]}, difference ${gapText(gap)}`);
  $("first-name").textContent = `i = ${at.i}, episode ${episode(at.i)}`;
  $("second-name").textContent = `j = ${at.j}, episode ${episode(at.j)}`;
  pictures.forEach((picture) => picture.mark());
}

function made(name, content) {
  const tag = document.createElement(name);
  tag.textContent = content;
  return tag;
}

function play(wanted) {
  clearInterval(playing);
  playing = wanted ? setInterval(() => (at.i < last ? go(at.i + 1) : play(false)), 1000 / data.speed) : null;
  $("play").textContent = wanted ? "pause" : "play";
}

function choose(anchor) {
  at.anchor = anchor;
  $("meaning").textContent = `Values: ${data.gauges[anchor]}. Rewards: as the agent learns from them. Advantages: GAE ` +
    `of these values (γ = ${data.gamma}, λ = ${data.lam}), an end being worth zero. Shades tell episodes apart.`;
  pictures[0].draw();
  show();
}

for (const anchor of Object.keys(data.values)) {
  const label = made("label", anchor), radio = document.createElement("input");
  Object.assign(radio, { type: "radio", name: "anchor", value: anchor, checked: anchor === at.anchor });
  radio.addEventListener("change", () => choose(anchor));
  label.prepend(radio);
  $("anchor").append(label);
}
const ranked = data.ranking.map((start) => start.value);
const rankedText = (digits) => ranked.map((value) => value.toFixed(decimals(ranked, digits)));
const toldApart = (digits) => new Set(rankedText(digits)).size === new Set(ranked).size;
const rankedTexts = rankedText([2, 3, 4].find(toldApart) ?? 5);
data.ranking.forEach((start, k) => {
  const entry = document.createElement("li"), image = document.createElement("img");
  image.src = webp(start.frame);
  image.alt = `start state ${k + 1}`;
  const [step] = start.steps, times = start.times === 1 ? "once" : `${start.times} times`;
  entry.append(image, made("b", `${k + 1}.  ${rankedTexts[k]}`), made("span", times));
  if (step !== undefined) entry.append(made("button", `step ${step}`));
  entry.querySelector("button")?.addEventListener("click", () => { go(step); $("frame").scrollIntoView({ block: "center" }); });
  $("ranking").append(entry);
});
for (const name of ["scrub", "i", "j"]) $(name).max = last;
for (const name of ["scrub", "i"]) $(name).addEventListener("input", (event) => { play(false); go(+event.target.value); });
$("j").addEventListener("input", (event) => go(at.i, +event.target.value));
$("back").addEventListener("click", () => go(at.i - 1));
$("on").addEventListener("click", () => go(at.i + 1));
$("play").addEventListener("click", () => { if (!playing && at.i === last) go(0); play(!playing); });
document.addEventListener("keydown", (event) => {
  const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!way || event.altKey || event.ctrlKey || event.metaKey || event.target instanceof HTMLInputElement) return;
  event.preventDefault();
  go(at.i + way);
});
[$("lowest").textContent, $("highest").textContent] = [gapText(-largest), gapText(largest)];

const drawAll = () => pictures.forEach((picture) => picture.draw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
let width = 0;
new ResizeObserver(() => {
  if (document.body.clientWidth !== width) { width = document.body.clientWidth; drawAll(); }
}).observe(document.body);
drawAll();
const sizes = pairs[0].map(Math.abs);
choose(at.anchor);
go(0, sizes.indexOf(Math.max(...sizes)));  // something to see: what differs most from the start
