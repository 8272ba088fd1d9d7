"use strict";
// What tokens say comes from the data alone and is set as text; no HTML is made of it.
const DATA = JSON.parse(document.getElementById("data").textContent);
const MEAN = -1; // the head that stands for the mean over heads
const state = { view: 0, stack: 0, layer: 0, head: MEAN, query: 0, key: 0, step: 0 };

const HTML = "http://www.w3.org/1999/xhtml";
const SVG = "http://www.w3.org/2000/svg";

function element(tag, attributes = {}, ...children) {
  const node = document.createElementNS(["svg", "line"].includes(tag) ? SVG : HTML, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, String(value));
  }
  node.append(...children); // strings become text nodes
  return node;
}

// Characters that have no width, or turn the direction of what follows, are shown by their numbers.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u115f\u1160\u3164\uffa0\u2800]/gu;
function shown(label) {
  const numbered = (text) => `⟨U+${text.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
  const joined = /\p{Extended_Pictographic}\u200d\p{Extended_Pictographic}/u.test(label);
  const text = label.replace(/\n/g, "⏎").replace(/\t/g, "⇥")
    .replace(UNSEEN, (each) => (joined && each === "\u200d" ? each : numbered(each)));
  return text.trim() === "" ? "␣".repeat(Math.max(text.length, 1)) : text;
}

async function unpack(text, make) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return make(await new Response(stream).arrayBuffer());
}

async function unpackStack(stack) {
  stack.queries = DATA.sequences[stack.queries];
  stack.keys = DATA.sequences[stack.keys];
  stack.shares = await unpack(stack.weights, (buffer) => new Uint8Array(buffer));
  stack.least = await unpack(stack.least, (buffer) => new Float32Array(buffer));
  stack.greatest = await unpack(stack.greatest, (buffer) => new Float32Array(buffer));
  stack.masked = await unpack(stack.masked, (buffer) => new Uint8Array(buffer));
  stack.rows = stack.queries.labels.length;
  stack.count = Math.max(stack.heads.length, 1);
  stack.maps = new Map();
}

// The weights of a layer and head, row by row, or of the mean over heads; `masked` marks keys that a query does not see.
function weightsOf(stack, layer, head) {
  const name = `${layer} ${head}`;
  if (!stack.maps.has(name)) stack.maps.set(name, computeWeights(stack, layer, head));
  return stack.maps.get(name);
}

function computeWeights(stack, layer, head) {
  const size = stack.rows * stack.columns;
  const values = Object.assign(new Float32Array(size), { masked: new Uint8Array(size).fill(1) });
  const heads = head === MEAN ? [...Array(stack.count).keys()] : [head];
  for (const each of heads) {
    const first = (layer * stack.count + each) * stack.rows;
    for (let index = 0; index < size; index++) {
      const row = first + Math.floor(index / stack.columns);
      const [least, greatest] = [stack.least[row], stack.greatest[row]];
      const weight = least + (stack.shares[first * stack.columns + index] / 255) * (greatest - least);
      values[index] += weight / heads.length;
      const place = first * stack.columns + index;
      values.masked[index] &= stack.masked[place >> 3] >> (7 - (place & 7));
    }
  }
  return values;
}

const current = () => DATA.stacks[state.stack];
const currentWeights = () => weightsOf(current(), state.layer, state.head);
function rowOf(stack, values, query) {
  const [row, masked] = [values, values.masked].map((each) =>
    each.subarray(query * stack.columns, (query + 1) * stack.columns));
  return Object.assign(row, { masked });
}
// Causal attention opens on its last query, which sees all tokens; any other on its first.
const opening = (stack) => (stack.rows > 1 && stack.rows <= stack.columns &&
  weightsOf(stack, 0, MEAN).masked[(stack.rows - 2) * stack.columns + stack.rows - 1] ? stack.rows - 1 : 0);
const queryLabel = (stack, query) => shown(stack.queries.labels[query] ?? "");
const keyLabel = (stack, key) =>
  key < stack.keys.labels.length ? shown(stack.keys.labels[key]) : `${stack.keys.rest.toLocaleString("en")} more`;
const bound = (value, count) => Math.min(Math.max(value, 0), count - 1);
const percent = (value) => (value >= 0.0995 ? value.toFixed(2) : value.toFixed(3));
const layerName = (stack, layer) => `layer ${stack.layers[layer]}`;
const headName = (stack, head) =>
  head === MEAN || !stack.heads.length ? "mean" : `head ${stack.heads[head]}`;

function stackTitle(stack) {
  const [, path, name] = /^(.*?\.)?([^.]*)$/.exec(stack.name);
  const kind = name.startsWith("cross") ? "Cross-attention" : `Self-attention, ${name}`;
  return `${path ?? ""}${name.startsWith("cross, ") ? kind + name.slice(5) : kind}`;
}

// What a screen reader is told, and everybody reads below the view.
function say(text) {
  document.getElementById("status").textContent = text;
}

function sayRow(stack, values, query) {
  const row = rowOf(stack, values, query);
  const order = [...row.keys()].sort((one, other) => row[other] - row[one]).slice(0, 3);
  const most = order.map((key) => `\u2068${keyLabel(stack, key)}\u2069: ${percent(row[key])}`).join("; ");
  say(`${stackTitle(stack)}, ${layerName(stack, state.layer)}, ${headName(stack, state.head)}: ` +
    `\u2068${queryLabel(stack, query)}\u2069 attends to ${most}`);
}

// Arrows move by rows and columns.
const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
const onArrows = (move) => (event) => {
  if (!STEPS[event.key]) return;
  event.preventDefault();
  move(...STEPS[event.key]);
};

function rgb(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((start) => parseInt(text.slice(start, start + 2), 16));
}

// The colours from 0 to the end of the scale, and the meaning of grey and of dashes.
function legend(top, { unit = "weight", from = "var(--panel)", to = "var(--accent)", stack = null } = {}) {
  const ramp = element("i");
  ramp.style.background = `linear-gradient(to right, ${from}, ${to})`;
  const isMasked = stack && stack.layers.some((_, layer) => weightsOf(stack, layer, MEAN).masked.includes(1));
  return element("p", { class: "legend" }, element("span", {}, `${unit} 0`, ramp, String(top)),
    ...(isMasked ? [element("span", {}, element("i", { class: "masked" }), "masked: the query does not see the key")] : []),
    ...(stack?.keys.prompt ? [element("span", {}, "dashed line: end of the prompt")] : []));
}

// A pixel for each weight, by its share of the scale; styles enlarge it.
function paint(canvas, values, columns, scale, pixel) {
  [canvas.width, canvas.height] = [columns, values.length / columns];
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  values.forEach((value, index) => image.data.set(pixel(Math.min(value / scale, 1), index), index * 4));
  context.putImageData(image, 0, 0);
}

// Of another colour below zero, and grey where the key is masked.
function drawMap(canvas, values, stack) {
  const [from, above, below, grey] = ["--panel", "--accent", "--mark", "--masked"].map(rgb);
  paint(canvas, values, stack.columns, stack.scale, (share, index) => {
    if (values.masked[index]) return [...grey, 255];
    const to = share < 0 ? below : above;
    return [...from.map((part, index) => part + (to[index] - part) * Math.min(Math.abs(share), 1)), 255];
  });
}

// A colour of some opacity by weight, above a picture.
// Its scale ends at the greatest weight of the query, at least at five times that of even attention, as in stacks.py.
function drawOverlay(canvas, scale, values, columns, colour, opacity) {
  const most = Math.ceil(100 * Math.min(values.reduce((one, other) => Math.max(one, other), 5 / values.length), 1)) / 100;
  paint(canvas, values, columns, most, (share) => [...colour, 255 * opacity * Math.max(share, 0)]);
  const [from, to] = [0, opacity].map((each) => `rgb(${colour.join(" ")} / ${each})`);
  scale.replaceChildren(legend(most, { from, to }));
}

// The background of a token by its share, under letters that can be read on it; grey where it is masked.
function shade(node, share, masked = 0) {
  node.classList.toggle("masked", masked === 1);
  const isSeen = share > 0.004;
  node.style.backgroundColor = isSeen ? `color-mix(in srgb, var(--accent) ${100 * share}%, var(--panel))` : "";
  node.style.color = isSeen && share > 0.5 ? "var(--paper)" : "";
}

// A map with the names of queries at its left and of keys above it.
function drawLabelled(canvas, stack, values, width) {
  const context = canvas.getContext("2d");
  context.font = "13px system-ui, sans-serif";
  const widest = (labels) => Math.min(Math.max(20, ...labels.map((label) => context.measureText(label).width)), 110) + 10;
  const queries = stack.queries.labels.map(shown);
  const keys = [...Array(stack.columns).keys()].map((key) => keyLabel(stack, key));
  const [left, top] = [widest(queries), widest(keys)];
  const cell = Math.max(bound(Math.floor((width - left - 4) / stack.columns), 31), 3);
  const scale = window.devicePixelRatio || 1;
  const size = [left + cell * stack.columns + 2, top + cell * stack.rows + 2];
  [canvas.width, canvas.height] = size.map((length) => Math.round(length * scale));
  [canvas.style.width, canvas.style.height] = size.map((length) => `${length}px`);
  context.scale(scale, scale);
  const map = document.createElement("canvas");
  drawMap(map, values, stack);
  context.imageSmoothingEnabled = false;
  context.drawImage(map, left, top, cell * stack.columns, cell * stack.rows);
  drawLabels(context, { left, top, cell }, queries, keys, stack.queries.prompt);
  return { left, top, cell };
}

function drawLabels(context, place, queries, keys, prompt) {
  const { left, top, cell } = place;
  const [text, mark] = ["--text", "--mark"].map((name) => `rgb(${rgb(name).join(" ")})`);
  context.font = "13px system-ui, sans-serif";
  context.textBaseline = "middle";
  // Every label where there is room, else some, and none over that of what is chosen.
  const write = (labels, chosen, room, put) => labels.forEach((label, number) => {
    if (number !== chosen && (number % Math.ceil(14 / cell) || Math.abs(number - chosen) * cell < 14)) return;
    context.fillStyle = number === chosen ? mark : text;
    put(label, (number + 0.5) * cell, room);
  });
  context.textAlign = "right";
  write(queries, state.query, left - 8, (label, at, room) => context.fillText(label, left - 5, top + at, room));
  context.save();
  context.rotate(-Math.PI / 2);
  context.textAlign = "left";
  write(keys, state.key, top - 8, (label, at, room) => context.fillText(label, -top + 5, left + at, room));
  context.restore();
  context.strokeStyle = mark;
  context.lineWidth = 2;
  if (prompt) {
    const [across, down] = [left + prompt * cell, top + prompt * cell];
    context.setLineDash([4, 3]);
    context.stroke(new Path2D(`M${across} 0V${top + queries.length * cell}M0 ${down}H${left + keys.length * cell}`));
    context.setLineDash([]);
  }
  context.strokeRect(left + state.key * cell, top + state.query * cell, cell, cell);
}

// All layers and heads as small maps, and one of them large; of a translation the large one is its alignment.
const matrixView = {
  get title() {
    const { name, queries, keys } = current();
    return name.endsWith("cross") && queries.kind === "tokens" && keys.kind === "tokens" ? "Alignment" : "Matrix";
  },
  fits: () => true,

  build(root) {
    const stack = current();
    this.cells = [];
    this.grid = element("div", {
      class: "heads", tabindex: 0, role: "group", keydown: onArrows((rows, columns) => {
        const head = this.heads[bound(this.heads.indexOf(state.head) + columns, this.heads.length)];
        change({ layer: bound(state.layer + rows, stack.layers.length), head });
      }),
      "aria-label": "Layers and heads; arrows choose one",
    });
    const heads = stack.count > 1 ? [MEAN, ...Array(stack.count).keys()] : [MEAN];
    this.heads = heads;
    this.grid.style.gridTemplateColumns = `max-content repeat(${heads.length}, max-content)`;
    const most = window.innerWidth < 600 ? 54 : 84;
    this.grid.style.setProperty("--side", `${Math.max(Math.min(most, Math.floor(900 / heads.length)), 40)}px`);
    this.grid.append(element("span", { class: "corner" }, "layer"));
    this.grid.append(...heads.map((head) => element("span", { class: "name" }, headName(stack, head))));
    stack.layers.forEach((number, layer) => {
      this.grid.append(element("span", { class: "name" }, String(number)));
      for (const head of heads) this.grid.append(this.cell(stack, layer, head));
    });
    this.canvas = element("canvas", {
      class: "map", tabindex: 0, role: "img", keydown: onArrows((rows, columns) => change({
        query: bound(state.query + rows, stack.rows), key: bound(state.key + columns, stack.columns) })),
      click: (event) => this.point(event), pointermove: (event) => this.point(event),
    });
    this.heading = element("h2");
    const maps = stack.layers.length * heads.length > 1 ? [element("h2", {}, "Layers and heads"),
      element("div", { class: "scroll" }, this.grid)] : [];
    root.append(...maps, this.heading,
      element("p", { class: "hint" }, "Rows are queries, columns are keys."), legend(stack.scale, { stack }),
      element("div", { class: "scroll" }, this.canvas));
    this.update();
  },

  cell(stack, layer, head) {
    const canvas = element("canvas", { class: "map" });
    drawMap(canvas, weightsOf(stack, layer, head), stack);
    const cell = element("div", { class: "cell", click: () => change({ layer, head }),
      title: `${layerName(stack, layer)}, ${headName(stack, head)}` }, canvas);
    this.cells.push([layer, head, cell]);
    return cell;
  },

  update() {
    const stack = current();
    const values = currentWeights();
    for (const [layer, head, cell] of this.cells) {
      const isChosen = layer === state.layer && head === state.head;
      cell.classList.toggle("selected", isChosen);
      if (isChosen) reveal(cell);
    }
    this.heading.textContent = `${stackTitle(stack)}, ${layerName(stack, state.layer)}, ${headName(stack, state.head)}`;
    const width = this.canvas.parentElement.clientWidth;
    this.place = drawLabelled(this.canvas, stack, values, width);
    const weight = values[state.query * stack.columns + state.key];
    const told = `${queryLabel(stack, state.query)} attends to ${keyLabel(stack, state.key)}: ${percent(weight)}`;
    this.canvas.setAttribute("aria-label", `Weights; arrows choose a query and a key. ${told}`);
    sayRow(stack, values, state.query);
    document.getElementById("status").append(element("br"), told);
  },

  point(event) {
    const { left, top, cell } = this.place;
    const query = Math.floor((event.offsetY - top) / cell);
    const key = Math.floor((event.offsetX - left) / cell);
    const stack = current();
    const isInside = query >= 0 && key >= 0 && query < stack.rows && key < stack.columns;
    if (isInside && (query !== state.query || key !== state.key)) change({ query, key });
  },
};

// Scroll the part around a node, and not the page.
function reveal(node) {
  const part = node.closest(".scroll, .chips");
  if (!part) return;
  const [inner, outer] = [node.getBoundingClientRect(), part.getBoundingClientRect()];
  if (inner.left < outer.left || inner.right > outer.right) part.scrollLeft += inner.left - outer.left - 8;
  if (inner.top < outer.top || inner.bottom > outer.bottom) part.scrollTop += inner.top - outer.top - 8;
}

// Entropy and distance of every layer and head.
const overviewView = {
  title: "Overview",
  fits: () => true,

  build(root) {
    const stack = current();
    const unit = { patches: "patches", frames: "frames" }[stack.keys.kind] ?? "tokens";
    this.cells = [];
    root.append(
      element("h2", {}, "Entropy of the attention weights"),
      element("p", { class: "hint" },
        "Mean over queries: 0 bits if one key gets all the weight, 1 bit if two keys share it equally, 3 bits if eight do."),
      this.table(stack, stack.entropy, "Entropy by layer and head; arrows choose one", "bits"),
      ...(stack.distance ? [
        element("h2", {}, "Mean distance from query to key"),
        element("p", { class: "hint" }, `In ${unit}, weighted by attention, mean over queries.`),
        this.table(stack, stack.distance, "Distance by layer and head; arrows choose one", unit),
      ] : []));
    this.update();
  },

  table(stack, values, name, unit) {
    const most = Math.max(...values.flat(), 1e-9);
    const numbers = values[0].map((_, head) => element("th", { scope: "col" }, `head ${stack.heads[head] ?? head}`));
    const rows = values.map((row, layer) => element("tr", {},
      element("th", { scope: "row" }, layerName(stack, layer)),
      ...row.map((value, head) => {
        const cell = element("td", { click: () => this.choose(layer, head) }, value.toFixed(2));
        shade(cell, value / most);
        this.cells.push([layer, head, cell]);
        return cell;
      })));
    return element("div", { class: "scroll" }, legend(most.toFixed(2), { unit }), element("table", {
      class: "numbers", tabindex: 0, "aria-label": name, keydown: onArrows((down, right) =>
        this.choose(bound(state.layer + down, stack.layers.length), bound(this.head + right, stack.entropy[0].length))),
    }, element("tr", {}, element("th", {}, ""), ...numbers), ...rows));
  },

  choose(layer, head) {
    this.head = head;
    change({ layer, head: current().heads.length > 1 ? head : MEAN });
  },

  update() {
    const stack = current();
    const kept = stack.heads.length > 1 ? 0 : bound(this.head ?? 0, stack.entropy[0].length);
    const head = this.head = state.head === MEAN ? kept : state.head;
    for (const [layer, own, cell] of this.cells) {
      cell.classList.toggle("selected", layer === state.layer && own === head);
    }
    const distance = stack.distance ? `, distance ${stack.distance[state.layer][head].toFixed(2)}` : "";
    say(`${stackTitle(stack)}, ${layerName(stack, state.layer)}, head ${stack.heads[head] ?? head}: entropy ` +
      `${stack.entropy[state.layer][head].toFixed(2)} bits${distance}`);
  },
};

// Queries at the left, keys at the right, and lines between them, as in BertViz.
const HEIGHT = 26; // of a token, as in the styles
const MOST_ROWS = 40; // queries of which lines are drawn at once, and the least weight of such a line
const FAINT = 0.04;

const tokensView = {
  title: "Tokens",
  fits: () => current().queries.kind !== "patches" && ["tokens", "objects"].includes(current().keys.kind),

  build(root) {
    const stack = current();
    this.queries = queryList(stack, stack.rows, "column queries");
    this.keys = keyItems(stack);
    this.lines = element("svg", { "aria-hidden": "true" });
    this.lines.style.height = `${HEIGHT * Math.max(stack.rows, stack.columns)}px`;
    const keys = element("ul", { class: "column keys", "aria-label": "Keys" }, ...this.keys);
    root.append(
      legend(stack.scale, { stack }), element("div", { class: "lines" },
        element("span", { class: "heading column queries" }, "query"), element("span"),
        element("span", { class: "heading" }, "key"), this.queries.root, this.lines, keys));
    this.update();
  },

  update() {
    const stack = current();
    const values = currentWeights();
    const row = rowOf(stack, values, state.query);
    this.queries.update();
    this.keys.forEach((node, key) => shade(node, row[key] / stack.scale, row.masked[key]));
    const others = stack.rows <= MOST_ROWS ? [...Array(stack.rows).keys()].filter((query) => query !== state.query) : [];
    const lines = others.flatMap((query) => this.rowLines(rowOf(stack, values, query), query, FAINT, 0.3));
    this.lines.replaceChildren(...lines, ...this.rowLines(row, state.query, 0.01, 1));
    sayRow(stack, values, state.query);
  },

  rowLines(row, query, least, strength) {
    const lines = [];
    row.forEach((weight, key) => {
      if (weight < least) return;
      lines.push(element("line", { x1: 0, x2: "100%", y1: (query + 0.5) * HEIGHT, y2: (key + 0.5) * HEIGHT,
        "stroke-opacity": Math.min(0.08 + weight * 0.92, 1) * strength, "stroke-width": 1 + weight * 2.5 * strength }));
    });
    return lines;
  },
};

// Any arrow moves in a list; Home and End go to its ends.
function moveQuery(event) {
  const count = current().rows;
  const ends = { Home: 0, End: count - 1 };
  const step = STEPS[event.key];
  if (!step && !(event.key in ends)) return;
  event.preventDefault();
  change({ query: step ? bound(state.query + step[0] + step[1], count) : ends[event.key] });
  document.getElementById(`query${state.query}`)?.scrollIntoView({ block: "nearest" });
}

// What a query attends to: tokens in a row, patches of a picture, or frames of a spectrogram.
function keyPanel(stack, choose) {
  const kind = stack.keys.picture ? stack.keys.kind : "tokens";
  return { patches: picturePanel, frames: soundPanel }[kind]?.(stack, choose) ?? tokenPanel(stack);
}

// The first token after the prompt has a dashed edge.
const writtenClass = (positions, number) => (positions.prompt && number === positions.prompt ? "written" : null);

const keyItems = (stack) => [...Array(stack.columns).keys()].map((key) => element("li", {
  dir: "auto", title: keyLabel(stack, key), class: writtenClass(stack.keys, key) }, keyLabel(stack, key)));

function tokenPanel(stack) {
  const chips = keyItems(stack);
  const root = element("div", {}, element("ul", { class: "chips" }, ...chips), legend(stack.scale, { stack }));
  const update = (row, last = stack.columns) => {
    chips.forEach((chip, key) => {
      shade(chip, row[key] / stack.scale, row.masked[key]);
      chip.classList.toggle("later", key > last && key < stack.keys.labels.length);
    });
    if (last < stack.columns) reveal(chips[last]);
  };
  return { root, update };
}

function picturePanel(stack, choose) {
  const { keys, queries } = stack;
  const [rows, columns] = keys.grid;
  const canvas = element("canvas");
  const image = element("img", { src: keys.picture, alt: "The picture as the model reads it", class: "veiled" });
  const mark = element("div", { class: "patch" });
  const picture = element("div", { class: `picture${choose ? " choice" : ""}` }, image, canvas);
  const [scale, before] = [element("div"), element("p", { class: "hint" })];
  if (choose) {
    picture.append(mark);
    onPlace(picture, rows, columns, (patch) => choose(keys.prefix + patch));
  }
  const frame = element("div", { class: "frame" });
  if (queries.boxes) picture.append(frame);
  const update = (row, _, query = state.query) => {
    drawOverlay(canvas, scale, row.subarray(keys.prefix, keys.prefix + rows * columns), columns, [255, 176, 0], 0.8);
    before.textContent = keys.labels.slice(0, keys.prefix)
      .map((label, key) => `${shown(label)}: ${percent(row[key])}`).join("; ");
    const patch = query - keys.prefix;
    mark.hidden = patch < 0;
    set(mark, [patch % columns / columns, Math.floor(patch / columns) / rows, 1 / columns, 1 / rows]);
    if (queries.boxes) set(frame, queries.boxes[query]);
  };
  return { root: element("div", {}, picture, scale, before), update };
}

// A click chooses a cell of the grid over a node.
function onPlace(node, rows, columns, choose) {
  node.addEventListener("click", (event) => {
    const place = node.getBoundingClientRect();
    const row = bound(Math.floor((event.clientY - place.top) / place.height * rows), rows);
    choose(row * columns + bound(Math.floor((event.clientX - place.left) / place.width * columns), columns));
  });
}

function set(node, [left, top, width, height]) {
  Object.assign(node.style, {
    left: `${left * 100}%`, top: `${top * 100}%`, width: `${width * 100}%`, height: `${height * 100}%`,
  });
}

function soundPanel(stack, choose) {
  const { keys } = stack;
  const [scale, over] = [element("div"), element("canvas", { class: "over" })];
  const image = element("img", { src: keys.picture, alt: "Spectrogram: time to the right, frequency upwards" });
  const sound = element("div", { class: "sound" }, image, over);
  if (choose) onPlace(sound, 1, keys.labels.length, choose);
  const axis = element("div", { class: "axis" }, element("span", {}, shown(keys.labels[0])),
    element("span", {}, "time"), element("span", {}, shown(keys.labels[keys.labels.length - 1])));
  const update = (row) =>
    drawOverlay(over, scale, row.subarray(0, keys.labels.length), keys.labels.length, [11, 92, 173], 0.65);
  return { root: element("div", {}, sound, axis, scale), update };
}

// A list of the first queries from which one is chosen: words above a spectrogram, objects beside a picture.
function queryList(stack, count, name) {
  const items = stack.queries.labels.slice(0, count).map((label, query) => element("li", {
    role: "option", id: `query${query}`, dir: "auto", title: shown(label), click: () => change({ query }),
    class: writtenClass(stack.queries, query),
  }, shown(label)));
  const root = element("ul", { class: name, role: "listbox", tabindex: 0, "aria-label": "Queries; arrows choose one",
    keydown: moveQuery }, ...items);
  const update = () => {
    items.forEach((item, query) => {
      item.classList.toggle("selected", query === state.query);
      item.setAttribute("aria-selected", String(query === state.query));
    });
    root.setAttribute("aria-activedescendant", `query${state.query}`);
  };
  return { root, update };
}

const keysView = {
  get title() {
    return current().keys.kind === "frames" ? "Sound" : "Picture";
  },
  fits: () => ["patches", "frames"].includes(current().keys.kind) && current().keys.picture !== null,

  build(root) {
    const stack = current();
    const isOwn = stack.queries === stack.keys || stack.queries.grid !== null || stack.queries.kind === "frames";
    this.panel = keyPanel(stack, isOwn ? (query) => change({ query }) : null);
    const count = isOwn ? stack.keys.prefix : stack.rows;
    this.list = count ? queryList(stack, count, "chips choice") : null;
    const patches = stack.keys.grid ? " Patches are (row, column), counted from 1." : "";
    const hint = isOwn
      ? `Click a place to see what it attends to, or move with the arrows.${patches}`
      : `Choose a query to see what it attends to.${patches}`;
    const place = isOwn ? { tabindex: 0, role: "group", "aria-label": "Place of the query; arrows move it",
      keydown: stack.keys.grid ? onArrows(this.move) : moveQuery } : {};
    const isSound = stack.keys.kind === "frames";
    const list = this.list ? [this.list.root] : [];
    const map = element("div", place, this.panel.root);
    const parts = isSound ? [...list, map] : [map, element("div", {}, ...list)];
    root.append(element("p", { class: "hint" }, hint),
      element("div", { class: isSound ? "parts above" : "parts" }, ...parts));
    this.update();
  },

  update() {
    const stack = current();
    const values = currentWeights();
    this.panel.update(rowOf(stack, values, state.query));
    this.list?.update();
    sayRow(stack, values, state.query);
  },

  move(down, right) {
    const { grid: [rows, columns], prefix } = current().keys;
    const place = state.query - prefix;
    if (place < 0) return change({ query: bound(state.query + down + right, prefix + 1) });
    const row = Math.floor(place / columns) + down;
    if (row < 0 && prefix) return change({ query: prefix - 1 });
    return change({ query: prefix + bound(row, rows) * columns + bound(place % columns + right, columns) });
  },
};

// Attention of a decoder when it wrote each token, step by step.
const filmView = {
  title: "Generation",
  fits: () => DATA.film !== null && filmSteps().length > 0,

  build(root) {
    const steps = filmSteps();
    state.step = bound(state.step, steps.length);
    this.slider = element("input", { type: "range", min: 0, max: steps.length - 1, id: "step",
      "aria-label": "Step of generation", input: (event) => change({ step: Number(event.target.value) }) });
    this.count = element("span");
    this.text = element("p", { dir: "auto" });
    this.best = element("div", { class: "best", "aria-label": "Most probable tokens" });
    this.panels = DATA.film.stacks.map((number) => {
      const stack = DATA.stacks[number];
      return { stack, panel: keyPanel(stack, null) };
    });
    const parts = this.panels.map(({ stack, panel }) =>
      element("section", {}, element("h2", {}, stackTitle(stack)), panel.root));
    root.append(element("div", { class: "film" }, this.slider, this.count), this.text, this.best, ...parts);
    this.update();
  },

  update() {
    const steps = filmSteps();
    const step = steps[state.step];
    this.slider.value = String(state.step);
    this.count.textContent = `${state.step + 1} of ${steps.length}`;
    this.text.replaceChildren("Written: ", ...steps.slice(0, state.step).map((each) => shown(each.token)),
      element("strong", { class: "new" }, shown(step.token)));
    const rows = step.taken >= 0 ? step.best : [...step.best, [step.token, step.probability]];
    const chosen = step.taken >= 0 ? step.taken : step.best.length;
    this.best.replaceChildren(...rows.flatMap(([label, probability], index) => {
      const bar = element("span", { class: "bar" });
      bar.style.width = `${probability * 100}%`;
      const taken = index === chosen ? " taken" : "";
      return [element("span", { class: `name${taken}`, dir: "auto" }, shown(label)), bar,
        element("span", { class: `value${taken}` }, percent(probability))];
    }));
    for (const { stack, panel } of this.panels) {
      const layer = bound(state.layer, stack.layers.length);
      const head = state.head < stack.count && stack.heads.length > 1 ? state.head : MEAN;
      const isOwn = stack.name.endsWith("decoder");
      panel.update(rowOf(stack, weightsOf(stack, layer, head), step.row), isOwn ? step.row : undefined, step.row);
    }
    say(`Step ${state.step + 1}: ${shown(step.token)}, probability ${percent(step.probability)}`);
  },
};

// The steps whose rows are among those shown.
function filmSteps() {
  const rows = Math.min(...DATA.film.stacks.map((number) => DATA.stacks[number].rows));
  return DATA.film.steps.filter((step) => step.row < rows);
}

// The predicted chain in space, which dragging and arrows turn, beside the map of its contacts.
const structureView = {
  title: "Structure",
  fits: () => DATA.structure !== null,

  build(root) {
    const { labels } = DATA.structure;
    const count = labels.length;
    this.turn ??= [0.6, -0.4];
    this.chain = { queries: { labels }, keys: { labels }, rows: count, columns: count, scale: 1 };
    this.space = element("canvas", { class: "space", tabindex: 0, role: "img",
      keydown: onArrows((down, right) => this.rotate(right * 0.2, down * 0.2)),
      pointerdown: (event) => this.space.setPointerCapture(event.pointerId),
      pointermove: (event) => event.buttons && this.rotate(event.movementX / 100, event.movementY / 100) });
    this.map = element("canvas", { class: "map", tabindex: 0, role: "img", keydown: onArrows((rows, columns) =>
      change({ query: bound(state.query + rows, count), key: bound(state.key + columns, count) })),
      click: (event) => this.point(event), pointermove: (event) => this.point(event) });
    root.append(
      element("p", { class: "hint" }, "Drag the chain, or turn it with the arrows. A place in the map names two residues."),
      element("div", { class: "parts" },
        element("section", {}, element("h2", {}, "Predicted structure"), this.space,
          legend(100, { unit: "pLDDT", from: "var(--mark)", to: "var(--accent)" })),
        element("section", {}, element("h2", {}, "Contacts: probability of at most 8 Å"),
          element("div", { class: "scroll" }, this.map), legend(1, { unit: "probability" }))));
    this.update();
  },

  update() {
    const { labels, points, plddt, shares } = DATA.structure;
    const [one, other] = [state.query, state.key].map((number) => bound(number, labels.length));
    this.place = drawLabelled(this.map, this.chain, shares, this.map.parentElement.clientWidth);
    this.draw([one, other]);
    const far = Math.hypot(...points[one].map((value, axis) => value - points[other][axis]));
    const name = (number) => `${shown(labels[number])}${number + 1} (pLDDT ${plddt[number]})`;
    const told = `${name(one)} and ${name(other)} are ${far.toFixed(1)} Å apart as predicted; ` +
      `contact ${percent(shares[one * labels.length + other])}`;
    this.map.setAttribute("aria-label", `Contacts; arrows choose two residues. ${told}`);
    this.space.setAttribute("aria-label", `Predicted chain; arrows turn it. ${told}`);
    say(told);
  },

  rotate(right, down) {
    this.turn = [this.turn[0] + right, this.turn[1] + down];
    this.update();
  },

  point(event) {
    const { left, top, cell } = this.place;
    const [query, key] = [event.offsetY - top, event.offsetX - left].map((at) => Math.floor(at / cell));
    const isInside = Math.min(query, key) >= 0 && Math.max(query, key) < this.chain.rows;
    if (isInside && (query !== state.query || key !== state.key)) change({ query, key });
  },

  // The chain from the farthest bond to the nearest; near ones are broader.
  draw(chosen) {
    const { points, plddt, labels } = DATA.structure;
    const [side, scale] = [this.space.clientWidth || 300, window.devicePixelRatio || 1];
    [this.space.width, this.space.height] = [side * scale, side * scale];
    const context = this.space.getContext("2d");
    context.scale(scale, scale);
    const placed = turned(points, this.turn).map(([x, y, depth]) => [side * (0.5 + 0.45 * x), side * (0.5 - 0.45 * y), depth]);
    const [unsure, sure] = ["--mark", "--accent"].map(rgb);
    const colour = (number) => `rgb(${unsure.map((part, at) => part + (sure[at] - part) * plddt[number] / 100).join(" ")})`;
    const bonds = placed.slice(1).map((each, number) => ({ number, depth: (each[2] + placed[number][2]) / 2 }));
    context.lineCap = "round";
    for (const { number, depth } of bonds.sort((one, other) => one.depth - other.depth)) {
      context.lineWidth = 5 + 3 * depth;
      context.globalAlpha = 0.7 + 0.3 * depth;
      context.strokeStyle = colour(number);
      const [from, to] = [placed[number], placed[number + 1]];
      context.stroke(new Path2D(`M${from[0]} ${from[1]}L${to[0]} ${to[1]}`));
    }
    context.globalAlpha = 1;
    context.fillStyle = `rgb(${rgb("--text").join(" ")})`;
    context.font = "13px system-ui, sans-serif";
    for (const number of new Set([0, labels.length - 1, ...chosen])) {
      const [x, y] = placed[number];
      if (chosen.includes(number)) context.fill(new Path2D(`M${x - 6} ${y}a6 6 0 1 0 12 0a6 6 0 1 0 -12 0`));
      context.fillText(`${shown(labels[number])}${number + 1}`, x + 9, y - 9);
    }
  },
};

// Points around their centre, the farthest at distance 1, after turns about the vertical and the horizontal axis.
function turned(points, [yaw, pitch]) {
  const centre = [0, 1, 2].map((axis) => points.reduce((sum, point) => sum + point[axis], 0) / points.length);
  const own = points.map((point) => point.map((value, axis) => value - centre[axis]));
  const farthest = Math.max(...own.map((point) => Math.hypot(...point)), 1e-9);
  return own.map((point) => {
    const [x, y, z] = point.map((value) => value / farthest);
    const [right, back] = [x * Math.cos(yaw) + z * Math.sin(yaw), z * Math.cos(yaw) - x * Math.sin(yaw)];
    return [right, y * Math.cos(pitch) - back * Math.sin(pitch), y * Math.sin(pitch) + back * Math.cos(pitch)];
  });
}

const VIEWS = [structureView, tokensView, keysView, matrixView, filmView, overviewView];
let tabs = [];

const available = () => VIEWS.filter((view) => view.fits());
const active = () => VIEWS[state.view];

// Change what is chosen, and draw again what depends on it.
function change(values) {
  Object.assign(state, values);
  document.getElementById("layer").value = String(state.layer);
  document.getElementById("head").value = String(state.head);
  active().update();
}

function show(view) {
  state.view = VIEWS.indexOf(view);
  const stack = current();
  state.layer = bound(state.layer, stack.layers.length);
  state.head = stack.heads.length > 1 && state.head < stack.count ? state.head : MEAN;
  state.query = bound(state.query, stack.rows);
  state.key = bound(state.key, stack.columns);
  buildTabs();
  buildControls();
  const root = document.getElementById("view");
  root.replaceChildren();
  root.setAttribute("aria-label", view.title);
  view.build(root);
}

function buildTabs() {
  const list = document.getElementById("tabs");
  const hadFocus = list.contains(document.activeElement);
  tabs = available().map((view) => {
    const isChosen = view === active();
    return element("button", { role: "tab", type: "button", "aria-selected": isChosen, "aria-controls": "view",
      tabindex: isChosen ? 0 : -1, click: () => show(view), keydown: moveTab }, view.title);
  });
  list.replaceChildren(...tabs);
  if (hadFocus) tabs.find((tab) => tab.tabIndex === 0)?.focus();
}

function moveTab(event) {
  const step = STEPS[event.key];
  if (!step || !step[1]) return;
  event.preventDefault();
  event.stopPropagation();
  const views = available();
  show(views[(views.indexOf(active()) + step[1] + views.length) % views.length]);
}

function choice(id, name, options, value, choose) {
  const select = element("select", { id, change: (event) => choose(Number(event.target.value)) },
    ...options.map(([number, text]) => element("option", { value: number }, text)));
  select.value = String(value);
  return element("span", {}, element("label", { for: id }, name), select);
}

function buildControls() {
  const stack = current();
  const controls = document.getElementById("controls");
  const focused = controls.contains(document.activeElement) ? document.activeElement.id : null;
  const stacks = DATA.stacks.map((each, number) => [number, stackTitle(each)]);
  const layers = stack.layers.map((number, layer) => [layer, String(number)]);
  const heads = [[MEAN, "mean"], ...(stack.heads.length > 1 ? stack.heads.map((number, head) => [head, String(number)]) : [])];
  controls.replaceChildren(
    choice("stack", "attention", stacks, state.stack, chooseStack),
    choice("layer", "layer", layers, state.layer, (layer) => change({ layer })),
    choice("head", "head", heads, state.head, (head) => change({ head })));
  if (focused) document.getElementById(focused)?.focus();
}

function chooseStack(number) {
  Object.assign(state, { stack: number, query: opening(DATA.stacks[number]) });
  show(active().fits() ? active() : available()[0]);
}

// Keys that work everywhere but where something is typed or chosen.
function shortcut(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select")) return;
  const stack = current();
  const step = event.shiftKey ? -1 : 1;
  const number = Number(event.key);
  if (event.key.toLowerCase() === "l") {
    change({ layer: bound(state.layer + step, stack.layers.length) });
  } else if (event.key.toLowerCase() === "h" && stack.heads.length > 1) {
    change({ head: bound(state.head + step + 1, stack.count + 1) - 1 });
  } else if (number >= 1 && number <= available().length) {
    show(available()[number - 1]);
  }
}

async function start() {
  document.getElementById("title").textContent = shown(DATA.title);
  document.getElementById("answer").textContent = DATA.answer;
  document.getElementById("notes").replaceChildren(...DATA.notes.map((note) => element("li", { dir: "auto" }, note)));
  await Promise.all(DATA.stacks.map(unpackStack));
  if (DATA.structure) {
    const bytes = await unpack(DATA.structure.contacts, (buffer) => new Uint8Array(buffer));
    DATA.structure.shares = Object.assign(Float32Array.from(bytes, (value) => value / 255), { masked: new Uint8Array(bytes.length) });
  }
  state.stack = Math.max(DATA.stacks.findIndex((stack) => stack.name.endsWith("cross")), 0);
  Object.assign(state, { layer: current().layers.length - 1, query: opening(current()) });
  show(available()[0]);
  document.addEventListener("keydown", shortcut);
  window.addEventListener("resize", () => active().update());
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(active()));
  document.body.dataset.ready = "true";
}

start();
