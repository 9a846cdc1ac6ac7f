// All that comes from the server or the reader is set as text, never as markup.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const END = 20; // bits at the end of the scale; what has more has the same colour
const PAUSE = 500; // milliseconds without a key before the text is shown
const LINES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]; // Okabe and Ito
const served = new Map();

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function drawn(name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

const bits = (value) => value.toFixed(value < 9.995 ? 2 : 1);
const percent = (value) => {
  if (value > 0 && value < 1e-6) return "< 0.0001 %";
  return `${value >= 0.1 || value === 0 ? (100 * value).toFixed(1) : (100 * value).toPrecision(2)} %`;
};
const visible = (string) => string.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replace(/^ +| +$/g, (s) => "␣".repeat(s.length));

async function ask(route, question) {
  const options = question && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(question),
  };
  let answer;
  try {
    answer = await fetch(`api/${route}`, options);
  } catch {
    throw new Error("the server does not answer: is it still running?");
  }
  const found = await answer.json().catch(() => ({ error: `the server answers ${answer.status}` }));
  if (!answer.ok) throw new Error(found.error);
  return found;
}

// One at a time: what is asked meanwhile is done once after it, the last time only.
function inTurn(name, work) {
  let running = false;
  let again = false;
  return async () => {
    if (running) { again = true; return; }
    running = true;
    do {
      again = false;
      $(`${name}-status`).textContent = "working …";
      $(`${name}-problem`).textContent = "";
      try {
        await work();
      } catch (error) {
        $(`${name}-problem`).textContent = error.message;
      }
      $(`${name}-status`).textContent = "";
    } while (again);
    running = false;
  };
}

function chosen() {
  const names = [$("first-model").value, $("second-model").value];
  return [...new Set(names)].filter((name) => served.has(name)).map((name) => served.get(name));
}

function panel(model, ...children) {
  const units = model.n_units === null ? "" : `, ${model.n_units} units`;
  const about = `${model.kind}${units}, vocabulary of ${model.n_tokens} (${model.unit}s)`;
  return element("article", { class: "answer" },
    element("h3", {}, model.name), element("p", { class: "about" }, about), ...children);
}

// Words in the colour of their surprisal, the number below each.
function colouredWords(words, model) {
  const byToken = $("by-token").checked;
  const shown = words.flatMap((word) => {
    const isEnd = word.string === model.end;
    const several = byToken && word.tokens.length > 0 ? word.tokens : [{ string: word.string, bits: word.bits }];
    return several.map((token) => ({ ...token, isEnd, line: word.line, unknown: word.n_unknown > 0, scored: word.tokens.length > 0 }));
  });
  const lines = [];
  for (const each of shown) {
    if (lines.length === 0 || lines.at(-1).line !== each.line) lines.push({ line: each.line, of: [] });
    lines.at(-1).of.push(each);
  }
  return lines.map(({ of }) => element("ol", { class: "words" }, ...of.map(colouredWord)));
}

function colouredWord({ string, bits: value, isEnd, unknown, scored }) {
  const share = Math.min(1, Math.max(0, value / END));
  const kinds = [unknown && "unknown", isEnd && "end"].filter(Boolean);
  const item = element("li", { class: kinds.join(" ") },
    element("span", { class: "string" }, isEnd ? "end" : visible(string)),
    element("span", { class: "bits" }, scored ? bits(value) : "not scored",
      element("span", { class: "aside" }, " bits"), unknown ? " unknown" : ""));
  item.style.setProperty("--share", share);
  return item;
}

function nextList(next, model) {
  const items = next.candidates.map(({ string, probability, continuation }) => {
    const name = string === model.end ? "end of the line" : visible(string);
    const button = element("button", { type: "button", disabled: continuation === "" },
      element("span", { class: "string" }, name), element("span", { class: "percent" }, percent(probability)));
    button.style.setProperty("--share", probability);
    button.addEventListener("click", () => {
      $("text").value = next.text + continuation;
      $("text").focus();
      showSentence();
    });
    return element("li", {}, button);
  });
  const rest = element("div", { class: "rest" }, element("span", {}, `the other ${next.n_rest}`),
    element("span", { class: "percent" }, percent(next.rest_probability)));
  rest.style.setProperty("--share", next.rest_probability);
  return [
    element("h4", {}, `Next ${model.unit}`),
    element("ol", { class: "next" }, ...items, element("li", {}, rest)),
    element("p", { class: "note" }, `entropy ${bits(next.entropy_bits)} bits; choose one to append it`),
  ];
}

function statePath(path) {
  const names = path.explained.map((share, i) => `component ${i + 1} (${percent(share)} of the variance)`);
  const rows = path.steps.map((step) => [String(step.line), visible(step.string), step.x.toPrecision(4), step.y.toPrecision(4)]);
  return [
    element("h4", {}, `Path of the state (${path.n_units} units)`),
    picture(path.steps, names),
    element("details", {}, element("summary", {}, "Path as a table"),
      element("div", { class: "scroll" }, table(["line", "token", "component 1", "component 2"], rows, 2))),
  ];
}

function picture(steps, names) {
  const width = 480, height = 340, margin = 40;
  const scaled = (axis, size) => {
    const values = steps.map((step) => step[axis]);
    const low = Math.min(...values), high = Math.max(...values);
    return (value) => margin + (high > low ? (value - low) / (high - low) : 0.5) * (size - 2 * margin);
  };
  const [across, up] = [scaled("x", width), scaled("y", height)];
  const points = steps.map((step) => ({ ...step, x: across(step.x), y: height - up(step.y) }));
  const svg = drawn("svg", { class: "path", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `The state after each of ${steps.length} tokens, in two principal components; the table below has the numbers.` });
  svg.append(
    drawn("line", { class: "axis", x1: margin / 2, y1: height - 22, x2: width - margin / 2, y2: height - 22 }),
    drawn("line", { class: "axis", x1: 22, y1: margin / 2, x2: 22, y2: height - margin / 2 }),
    drawn("text", { class: "axis-name", x: width / 2, y: height - 7, "text-anchor": "middle" }, names[0]),
    drawn("text", { class: "axis-name", "text-anchor": "middle", transform: `translate(13 ${height / 2}) rotate(-90)` }, names[1]),
  );
  for (const line of new Set(points.map((point) => point.line))) {
    const colour = LINES[(line - 1) % LINES.length];
    const own = points.filter((point) => point.line === line);
    svg.append(drawn("polyline", { points: own.map(({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" "), stroke: colour }));
    own.forEach(({ x, y }, i) => svg.append(
      drawn("circle", { cx: x, cy: y, r: i === 0 ? 5 : 3.5, fill: i === 0 ? "none" : colour, stroke: colour, "stroke-width": 2 })));
  }
  svg.append(...labels(points, width));
  return svg;
}

// The tokens beside their points, where there is room: the table names the others.
function labels(points, width) {
  const taken = points.map(({ x, y }) => [x - 3, y - 3, x + 3, y + 3]);
  const isFree = ([left, top, right, bottom]) => left > 24 && right < width
    && taken.every(([l, t, r, b]) => right < l || left > r || bottom < t || top > b);
  return points.flatMap(({ x, y, string }) => {
    const name = visible(string), size = 8 * [...name].length, anchors = [[6, -4], [6, 13], [-6 - size, -4], [-6 - size, 13]];
    const place = anchors.map(([dx, dy]) => [x + dx, y + dy - 10, x + dx + size, y + dy + 2]).find(isFree);
    if (!place) return [];
    taken.push(place);
    return [drawn("text", { x: place[0] < x ? place[2] : place[0], y: place[3] - 2, "text-anchor": place[0] < x ? "end" : "start" }, name)];
  });
}

function table(head, rows, firstNumber) {
  const kind = (i) => (i >= firstNumber ? { class: "number" } : {});
  return element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((name, i) => element("th", { scope: "col", ...kind(i) }, name)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell, i) => element("td", kind(i), cell))))));
}

function wordsTable(shown) {
  const rows = new Map();
  shown.forEach(({ surprisal }, column) => {
    for (const word of surprisal.words) {
      const place = `${word.line}.${word.place}`;
      if (!rows.has(place)) rows.set(place, { word, bits: shown.map(() => null) });
      rows.get(place).bits[column] = word.tokens.length > 0 ? word.bits : null;
    }
  });
  const head = ["line", "word", ...shown.map(({ model }) => `${model.name} (bits)`)];
  if (shown.length > 1) head.push("difference");
  return table(head, [...rows.values()].map(({ word, bits: found }) => {
    const cells = found.map((value) => (value === null ? "" : value.toFixed(3)));
    if (found.length > 1) cells.push(found.includes(null) ? "" : (found[1] - found[0]).toFixed(3));
    return [String(word.line), visible(word.string), ...cells];
  }), 2);
}

// What was asked last is kept, so that another way of showing it asks nothing.
let sentence = [];
let pairs = [];

function draw() {
  const scored = sentence.filter(({ surprisal }) => surprisal);
  $("scale").hidden = scored.length === 0 && pairs.length === 0;
  $("answers").replaceChildren(...sentence.map(sentencePanel));
  $("verdicts").replaceChildren(...pairs.map(pairPanel));
  $("table-of-words").hidden = scored.length === 0;
  if (scored.length > 0) $("table-of-words").lastElementChild.replaceChildren(wordsTable(scored));
}

function sentencePanel({ model, next, surprisal, path }) {
  if (!surprisal) return panel(model, ...nextList(next, model));
  const sum = `${bits(surprisal.bits)} bits in ${surprisal.n_tokens} tokens, perplexity ${surprisal.perplexity.toPrecision(4)}`;
  const noPath = element("p", { class: "note" }, "No path of the state: this model has no reservoir.");
  return panel(model, element("h4", {}, "Surprisal"), ...colouredWords(surprisal.words, model),
    element("p", { class: "sum" }, sum), ...nextList(next, model), ...(path ? statePath(path) : [noPath]));
}

function pairPanel({ model, verdict, first, second }) {
  const words = ({ words: all }) => colouredWords(all.filter((word) => word.string !== model.end), model);
  return panel(model, element("p", { class: "sum verdict" }, verdictText(verdict)),
    element("h4", {}, `First: ${bits(verdict.first_bits)} bits`), ...words(first),
    element("h4", {}, `Second: ${bits(verdict.second_bits)} bits`), ...words(second));
}

function verdictText({ likelier, difference_bits: difference }) {
  if (likelier === "neither") return "Both are equally likely.";
  const times = difference < 20 ? `, ${(2 ** difference).toPrecision(3)} times as probable` : "";
  return `The ${likelier} is likelier by ${bits(difference)} bits${times}.`;
}

async function sentenceAnswers(model, text) {
  const about = { model: model.name, text };
  const next = await ask("next", { ...about, k: 10 });
  if (text.trim() === "") return { model, next };
  const surprisal = await ask("surprisal", about);
  const path = model.n_units === null ? null : await ask("states", about);
  return { model, next, surprisal, path };
}

async function pairAnswers(model, first, second) {
  const verdict = await ask("pair", { model: model.name, first, second });
  const one = await ask("surprisal", { model: model.name, text: first });
  const two = await ask("surprisal", { model: model.name, text: second });
  return { model, verdict, first: one, second: two };
}

const showSentence = inTurn("sentence", async () => {
  const text = $("text").value;
  const found = [];
  for (const model of chosen()) found.push(await sentenceAnswers(model, text));
  sentence = found;
  draw();
});

const showPair = inTurn("pair", async () => {
  const texts = [$("first").value, $("second").value];
  const found = [];
  for (const model of chosen()) found.push(await pairAnswers(model, ...texts));
  pairs = found;
  draw();
});

async function start() {
  const { models, most_characters: most } = await ask("models");
  for (const model of models) served.set(model.name, model);
  const options = () => models.map(({ name }) => element("option", { value: name }, name));
  $("first-model").replaceChildren(...options());
  $("second-model").replaceChildren(element("option", { value: "" }, "none"), ...options());
  $("second-model").value = models[1]?.name ?? "";
  $("beside").hidden = models.length < 2;
  for (const id of ["text", "first", "second"]) $(id).maxLength = most;
  let waiting;
  $("text").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(showSentence, PAUSE);
  });
  for (const [id, show] of [["sentence", showSentence], ["pair", showPair]]) {
    $(id).addEventListener("submit", (event) => {
      event.preventDefault();
      clearTimeout(waiting);
      show();
    });
  }
  $("by-token").addEventListener("change", draw);
  for (const id of ["first-model", "second-model"]) {
    $(id).addEventListener("change", () => {
      showSentence();
      if (pairs.length > 0) showPair();
    });
  }
  await showSentence();
}

start().catch((error) => { $("sentence-problem").textContent = error.message; });
