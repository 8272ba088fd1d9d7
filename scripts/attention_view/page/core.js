"use strict";
// What tokens say comes from the data alone and is set as text; no HTML is made of it.
const DATA = JSON.parse(document.getElementById("data").textContent);
const MEAN = -1; // the head that stands for the mean over heads
const state = { view: 0, stack: 0, layer: 0, head: MEAN, query: 0, key: 0, step: 0 };

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
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
  stack.rows = stack.queries.labels.length;
  stack.count = Math.max(stack.heads.length, 1);
  stack.maps = new Map();
}

// The weights of a layer and head, row by row, or of the mean over heads.
function weightsOf(stack, layer, head) {
  const name = `${layer} ${head}`;
  if (!stack.maps.has(name)) stack.maps.set(name, computeWeights(stack, layer, head));
  return stack.maps.get(name);
}

function computeWeights(stack, layer, head) {
  const size = stack.rows * stack.columns;
  const values = new Float32Array(size);
  const heads = head === MEAN ? [...Array(stack.count).keys()] : [head];
  for (const each of heads) {
    const first = (layer * stack.count + each) * stack.rows;
    for (let index = 0; index < size; index++) {
      const row = first + Math.floor(index / stack.columns);
      const [least, greatest] = [stack.least[row], stack.greatest[row]];
      const weight = least + (stack.shares[first * stack.columns + index] / 255) * (greatest - least);
      values[index] += weight / heads.length;
    }
  }
  return values;
}

const current = () => DATA.stacks[state.stack];
const currentWeights = () => weightsOf(current(), state.layer, state.head);
const rowOf = (stack, values, query) => values.subarray(query * stack.columns, (query + 1) * stack.columns);
const queryLabel = (stack, query) => shown(stack.queries.labels[query] ?? "");
const keyLabel = (stack, key) =>
  key < stack.keys.labels.length ? shown(stack.keys.labels[key]) : `${stack.keys.rest.toLocaleString("en")} more`;
const greatestOf = (values) => values.reduce((most, value) => Math.max(most, value), 0);
const bound = (value, count) => Math.min(Math.max(value, 0), count - 1);
const percent = (value) => (value >= 0.0995 ? value.toFixed(2) : value.toFixed(3));
const layerName = (stack, layer) => `layer ${stack.layers[layer]}`;
const headName = (stack, head) =>
  head === MEAN || !stack.heads.length ? "mean of heads" : `head ${stack.heads[head]}`;

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

// Numbers that arrows change, by the key.
const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
