"use strict";

// All that can be seen is made here, by text nodes and attributes alone: tokens are never read as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const dark = matchMedia(data.screen);
const element = (id) => document.getElementById(id);
const state = { kind: 0, map: 0, query: 0, key: 0 };
const SVG = "http://www.w3.org/2000/svg";

function made(name, attributes, text, namespace) {
  const node = namespace ? document.createElementNS(namespace, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

async function unpacked(text) {
  const packed = Uint8Array.from(atob(text), (digit) => digit.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const kind = () => data.kinds[state.kind];
const keys = () => kind().keys.length;
const queries = () => kind().queries.length;
const bytes = (map) => kind().bytes.subarray(map * queries() * keys(), (map + 1) * queries() * keys());
// A byte is 255 times the square root of its weight, so that small weights differ, too.
const WEIGHTS = Float32Array.from({ length: 256 }, (_, byte) => (byte / 255) ** 2);
const row = (map, query) => bytes(map).subarray(query * keys(), (query + 1) * keys());
const weight = () => WEIGHTS[row(state.map, state.query)[state.key]];
const name = (map) => `layer ${kind().maps[map][0]}, head ${kind().maps[map][1]}`;

// The colour of each byte, up to the largest weight of a row or to the whole.
function colours(largest) {
  const scale = dark.matches ? data.dark : data.light;
  const table = new Uint8ClampedArray(256 * 4);
  for (let byte = 0; byte < 256; byte++) {
    const place = Math.min(1, WEIGHTS[byte] / largest) * (scale.length - 1);
    const low = Math.min(scale.length - 2, Math.floor(place));
    for (let channel = 0; channel < 3; channel++) {
      const [from, to] = [scale[low][channel], scale[low + 1][channel]];
      table[byte * 4 + channel] = from + (place - low) * (to - from);
    }
    table[byte * 4 + 3] = 255;
  }
  return table;
}

function largest(values) {
  return Math.max(1e-9, WEIGHTS[values.reduce((most, byte) => Math.max(most, byte), 0)]);
}

// A pixel for each weight.
function paint(canvas, map) {
  canvas.width = keys();
  canvas.height = queries();
  const image = new ImageData(keys(), queries());
  const isRelative = element("relative").checked;
  const whole = colours(1);
  for (let query = 0; query < queries(); query++) {
    const values = row(map, query);
    const table = isRelative ? colours(largest(values)) : whole;
    values.forEach((byte, key) => image.data.set(table.subarray(byte * 4, byte * 4 + 4), (query * keys() + key) * 4));
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function showKinds() {
  const buttons = data.kinds.map((each, place) => {
    const button = made("button", { type: "button", "aria-pressed": place === state.kind }, each.title);
    button.addEventListener("click", () => {
      show({ kind: place, map: 0, query: 0, key: 0 });
      element("kinds").children[place].focus();
    });
    return button;
  });
  element("kinds").replaceChildren(...buttons);
}

function showGrid() {
  const heads = Math.max(...kind().maps.map(([, head]) => head)) + 1;
  const grid = element("grid");
  grid.style.gridTemplateColumns = `max-content repeat(${heads}, max-content)`;
  const nodes = [made("span")];
  for (let head = 0; head < heads; head++) nodes.push(made("span", {}, `head ${head}`));
  let layer = -1;
  let line = 1;
  kind().maps.forEach(([place, head], map) => {
    if (place !== layer) {
      [layer, line] = [place, line + 1];
      const label = made("span", {}, `layer ${layer}`);
      label.style.gridArea = `${line} / 1`;
      nodes.push(label);
    }
    const button = made("button", { type: "button", class: "small", "aria-label": name(map), "data-map": map });
    button.style.gridArea = `${line} / ${head + 2}`;
    button.append(made("canvas"));
    button.addEventListener("click", () => show({ map }));
    nodes.push(button);
  });
  grid.replaceChildren(...nodes);
}

const smalls = () => [...element("grid").querySelectorAll("button")];

function paintGrid() {
  smalls().forEach((button, map) => paint(button.firstChild, map));
}

function markGrid() {
  smalls().forEach((button, map) => {
    button.setAttribute("aria-pressed", map === state.map);
    button.tabIndex = map === state.map ? 0 : -1;
  });
}

// Pixels of a weight: large where there are few tokens, and where there are many still as high as letters.
const side = () => Math.max(12, Math.min(44, Math.floor(720 / Math.max(queries(), keys()))));

function showLabels() {
  const size = side();
  const label = (dimension) => (text) => {
    const node = made("div", { dir: "auto", title: text }, text);
    node.style[dimension] = node.style.lineHeight = `${size}px`;
    node.style.fontSize = `${Math.min(14, size - 1)}px`;
    return node;
  };
  element("rows").replaceChildren(...kind().queries.map(label("height")));
  element("columns").replaceChildren(...kind().keys.map(label("width")));
}

function paintMap() {
  const canvas = element("cells").firstElementChild;
  paint(canvas, state.map);
  canvas.style.width = `${keys() * side()}px`;
  canvas.style.height = `${queries() * side()}px`;
  element("map-title").textContent = `${kind().title}, ${name(state.map)}`;
  const scale = (dark.matches ? data.dark : data.light).map((colour) => `rgb(${colour})`);
  element("ramp").style.background = `linear-gradient(to right, ${scale})`;
  element("most").textContent = element("relative").checked ? "the largest of its row" : "1";
}

function mark(parent, chosen) {
  [...element(parent).children].forEach((node, place) => node.classList.toggle("on", place === chosen));
}

// What is read out, for people and for programs.
function showWeight() {
  const [query, key, size] = [kind().queries[state.query], kind().keys[state.key], side()];
  const readout = element("readout");
  Object.assign(readout.dataset, { query, key, weight: weight().toFixed(4) });
  const token = (text) => made("bdi", {}, text);
  readout.replaceChildren(token(query), " \u2192 ", token(key), `: ${weight().toFixed(3)}`);
  Object.assign(element("cursor").style, {
    left: `${state.key * size}px`, top: `${state.query * size}px`, width: `${size}px`, height: `${size}px`,
  });
  mark("rows", state.query);
  mark("columns", state.key);
}

function showLines() {
  const height = 20;
  const wide = (labels) => 20 + 9 * Math.min(24, Math.max(...labels.map((label) => [...label].length)));
  const [left, right] = [wide(kind().queries), wide(kind().keys)];
  const rows = Math.max(queries(), keys());
  const svg = made("svg", { width: left + right + 260, height: rows * height + 8, "font-size": 13 }, undefined, SVG);
  kind().queries.forEach((_, query) => {
    const group = made("g", { "data-row": query }, undefined, SVG);
    const most = largest(row(state.map, query));
    row(state.map, query).forEach((byte, key) => {
      // Fainter lines cannot be seen, and there would be very many.
      if (!byte || WEIGHTS[byte] < 0.03 * most) return;
      const [y1, y2] = [query, key].map((place) => place * height + 14);
      const ends = { x1: left, y1, x2: left + 240, y2, "stroke-opacity": (WEIGHTS[byte] / most).toFixed(3) };
      group.append(made("line", ends, undefined, SVG));
    });
    svg.append(group);
  });
  const label = (x, anchor, change) => (text, place) => {
    const group = made("g", {}, undefined, SVG);
    const node = made("text", { x, y: place * height + 18, "text-anchor": anchor }, text, SVG);
    node.addEventListener("pointerenter", () => show(change(place)));
    group.append(node);
    svg.append(group);
  };
  kind().queries.forEach(label(left - 6, "end", (query) => ({ query })));
  kind().keys.forEach(label(left + 246, "start", (key) => ({ key })));
  element("lines").replaceChildren(svg);
}

function markLines() {
  const groups = [...element("lines").firstChild.children];
  const [rows, labels] = [groups.slice(0, queries()), groups.slice(queries())];
  rows.forEach((group, query) => group.setAttribute("class", query === state.query ? "strong" : "faint"));
  labels.forEach((group, place) => {
    const isOn = place === state.query || place - queries() === state.key;
    group.setAttribute("class", isOn ? "on" : "");
  });
}

// An image that is the darker the less a patch weighs.
function overlaid(picture, weights, caption) {
  const [rows, columns] = picture.grid;
  const canvas = made("canvas", { width: columns, height: rows });
  const image = new ImageData(columns, rows);
  const most = Math.max(1e-9, ...weights);
  weights.forEach((weight, place) => { image.data[place * 4 + 3] = 204 * (1 - weight / most); });
  canvas.getContext("2d").putImageData(image, 0, 0);
  const [figure, stack] = [made("figure"), made("div")];
  stack.append(made("img", { src: picture.source, alt: "" }), canvas);
  figure.append(stack, made("figcaption", {}, caption));
  return figure;
}

function showImages() {
  const picture = kind().picture;
  element("image-view").hidden = !picture;
  if (!picture) return;
  const patches = row(state.map, state.query).subarray(picture.first);
  const caption = `what ${kind().queries[state.query]} reads, ${name(state.map)}`;
  const figures = [overlaid(picture, Array.from(patches, (byte) => WEIGHTS[byte]), caption)];
  if (picture.rollout) figures.push(overlaid(picture, picture.rollout, "attention rollout over all layers"));
  element("images").replaceChildren(...figures);
}

// Changes what is shown, and draws what depends on it.
function show(change) {
  Object.assign(state, change);
  if ("kind" in change) {
    showKinds();
    showGrid();
    paintGrid();
    showLabels();
  }
  if ("kind" in change || "map" in change) {
    markGrid();
    paintMap();
    showLines();
  }
  showWeight();
  markLines();
  showImages();
}

function repaint() {
  paintGrid();
  paintMap();
}

const within = (value, count) => Math.max(0, Math.min(count - 1, value));
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function listen() {
  const point = (event) => {
    const place = element("cells").firstElementChild.getBoundingClientRect();
    const query = within(Math.floor((event.clientY - place.top) / side()), queries());
    const key = within(Math.floor((event.clientX - place.left) / side()), keys());
    if (query !== state.query || key !== state.key) show({ query, key });
  };
  for (const kind of ["pointerdown", "pointermove"]) element("cells").addEventListener(kind, point);
  element("map").addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    show({ query: within(state.query + step[0], queries()), key: within(state.key + step[1], keys()) });
    element("cursor").scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  element("grid").addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const [layer, head] = kind().maps[state.map];
    const layers = [...new Set(kind().maps.map(([each]) => each))];
    const goal = [layers[within(layers.indexOf(layer) + step[0], layers.length)], head + step[1]];
    const map = kind().maps.findIndex((each) => each[0] === goal[0] && each[1] === goal[1]);
    if (map < 0) return;
    show({ map });
    smalls()[map].focus();
  });
  element("relative").addEventListener("change", repaint);
  dark.addEventListener("change", repaint);
}

async function begin() {
  for (const each of data.kinds) each.bytes = await unpacked(each.weights);
  listen();
  show({ kind: 0 });
  document.body.dataset.ready = "true";
}

begin();
