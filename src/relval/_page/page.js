"use strict";
// What all pages draw with.

const data = JSON.parse(document.getElementById("data").textContent);

function element(name, attributes, parent) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (parent) parent.appendChild(made);
  return made;
}

function text(content, attributes, parent) {
  element("text", attributes, parent).textContent = content;
}

function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= least);
}

function multiples(step, low, high) {
  const marks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) marks.push(k * step);
  return marks;
}

function ticks(low, high, count) {
  return multiples(roundStep((high - low) / count || 1), low, high);
}

function number(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  return String(+value.toPrecision(size >= 100 ? 4 : 3));
}

