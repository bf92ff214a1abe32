"use strict";

// All that can be seen is made here, by text nodes and attributes alone: tokens are never read as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const element = (id) => document.getElementById(id);
const state = { step: 0, query: 0, temperature: 1 };

function made(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const step = () => data.steps[state.step];
const scores = () => step().tables.find((table) => table.scores);

function number(value) {
  if (value === null) return "\u2212\u221e";
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) < 5e-4 ? value.toExponential(1) : value.toFixed(3);
}

// Of the chosen row, as the module computes it: exp(score / T) by the sum of the row; what is hidden weighs 0.
function softmax(row, temperature) {
  const largest = Math.max(...row.filter((score) => score !== null));
  const powers = row.map((score) => (score === null ? 0 : Math.exp((score - largest) / temperature)));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}

function shownTable(table) {
  const dots = table.more ? [made("th", {}, "\u2026")] : [];
  const head = made("tr", {}, made("th", {}), ...table.columns.map((name) => made("th", { dir: "auto" }, name)), ...dots);
  const rows = table.values.map((values, place) => {
    const row = made("tr", {}, made("th", { dir: "auto" }, table.rows[place]), ...values.map((value) => made("td", {}, number(value))));
    if (!table.scores) return row;
    row.tabIndex = 0;
    row.addEventListener("click", () => show({ query: place }));
    row.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); show({ query: place }); }
    });
    return row;
  });
  const caption = made("caption", {}, `${table.name}  [${table.shape.join(", ")}]`);
  return made("div", { class: table.scores ? "table scores" : "table" },
    made("table", {}, caption, made("thead", {}, head), made("tbody", {}, ...rows)));
}

function showStep() {
  element("step-title").textContent = step().title;
  element("remark").textContent = step().remark;
  element("tables").replaceChildren(...step().tables.map(shownTable));
  element("steps").value = String(state.step);
  element("back").disabled = state.step === 0;
  element("next").disabled = state.step === data.steps.length - 1;
  element("softmax").hidden = !scores();
  document.body.dataset.step = state.step;
}

// What is read out, for people and for programs.
function showSoftmax() {
  const table = scores();
  if (!table) return;
  const query = Math.min(state.query, table.rows.length - 1);
  const weights = softmax(table.values[query], state.temperature);
  const temperature = state.temperature.toFixed(1);
  const readout = element("readout");
  Object.assign(readout.dataset, { query: table.rows[query], temperature, weights: weights.map((weight) => weight.toFixed(4)).join(",") });
  readout.replaceChildren(made("bdi", {}, table.rows[query]), ` at temperature ${temperature}`);
  element("degrees").textContent = temperature;
  const bars = weights.flatMap((weight, key) => {
    const bar = made("div", { class: "bar" });
    bar.style.width = `${100 * weight}%`;
    return [made("bdi", {}, table.columns[key]), bar, made("span", {}, weight.toFixed(3))];
  });
  element("bars").replaceChildren(...bars);
  element("tables").querySelectorAll(".scores tbody tr").forEach((row, place) => row.classList.toggle("on", place === query));
}

// Changes what is shown, and draws what depends on it.
function show(change) {
  Object.assign(state, change);
  if ("step" in change) showStep();
  showSoftmax();
}

const within = (place) => Math.max(0, Math.min(data.steps.length - 1, place));

function listen() {
  element("back").addEventListener("click", () => show({ step: within(state.step - 1) }));
  element("next").addEventListener("click", () => show({ step: within(state.step + 1) }));
  element("steps").addEventListener("change", (event) => show({ step: Number(event.target.value) }));
  element("temperature").addEventListener("input", (event) => show({ temperature: Number(event.target.value) }));
  document.addEventListener("keydown", (event) => {
    if (event.target.matches?.("input, select")) return;
    if (event.key === "ArrowLeft") show({ step: within(state.step - 1) });
    if (event.key === "ArrowRight") show({ step: within(state.step + 1) });
  });
}

const names = data.steps.map((each, place) => made("option", { value: place }, `${place + 1}. ${each.title}`));
element("steps").replaceChildren(...names);
listen();
show({ step: 0 });
document.body.dataset.ready = "true";
