"use strict";
function rgb(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((start) => parseInt(text.slice(start, start + 2), 16));
}

function mixed(share) {
  const [from, to] = [rgb("--panel"), rgb("--accent")];
  return from.map((value, index) => Math.round(value + (to[index] - value) * share));
}

// A pixel for each weight, of another colour below zero; styles enlarge it.
function drawMap(canvas, values, columns, most = greatestOf(values)) {
  const rows = values.length / columns;
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const [from, above, below] = [rgb("--panel"), rgb("--accent"), rgb("--mark")];
  values.forEach((value, index) => {
    const share = most > 0 ? Math.min(Math.abs(value) / most, 1) : 0;
    const to = value < 0 ? below : above;
    for (let part = 0; part < 3; part++) image.data[index * 4 + part] = from[part] + (to[part] - from[part]) * share;
    image.data[index * 4 + 3] = 255;
  });
  context.putImageData(image, 0, 0);
}

// A colour of some opacity by weight, above a picture.
function drawOverlay(canvas, values, columns, colour = [255, 176, 0], strongest = 0.8) {
  const most = greatestOf(values);
  canvas.width = columns;
  canvas.height = values.length / columns;
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  values.forEach((value, index) => {
    image.data.set([...colour, 255 * strongest * (most > 0 ? Math.max(value / most, 0) : 0)], index * 4);
  });
  context.putImageData(image, 0, 0);
}

// The background of a token by its share, with letters of the contrast that it asks for.
function shade(node, share) {
  const colour = mixed(share);
  const brightness = colour[0] * 0.299 + colour[1] * 0.587 + colour[2] * 0.114;
  node.style.backgroundColor = share > 0.004 ? `rgb(${colour.join(" ")})` : "";
  node.style.color = share > 0.004 ? (brightness > 128 ? "#10161d" : "#ffffff") : "";
}

// A map with the names of queries at its left and of keys above it.
function drawLabelled(canvas, stack, values, width) {
  const context = canvas.getContext("2d");
  context.font = "13px system-ui, sans-serif";
  const widest = (labels) => Math.min(Math.max(20, ...labels.map((label) => context.measureText(label).width)), 110) + 10;
  const queries = stack.queries.labels.map(shown);
  const keys = [...Array(stack.columns).keys()].map((key) => keyLabel(stack, key));
  const [left, top] = [widest(queries), widest(keys)];
  const side = bound(Math.floor((width - left - 4) / stack.columns), 31);
  const cell = Math.max(side, 3);
  const place = { left, top, cell };
  const scale = window.devicePixelRatio || 1;
  const size = [left + cell * stack.columns + 2, top + cell * stack.rows + 2];
  [canvas.width, canvas.height] = size.map((length) => Math.round(length * scale));
  [canvas.style.width, canvas.style.height] = size.map((length) => `${length}px`);
  context.scale(scale, scale);
  const map = document.createElement("canvas");
  drawMap(map, values, stack.columns);
  context.imageSmoothingEnabled = false;
  context.drawImage(map, left, top, cell * stack.columns, cell * stack.rows);
  drawLabels(context, place, queries, keys);
  return place;
}

function drawLabels(context, place, queries, keys) {
  const { left, top, cell } = place;
  const [text, mark] = ["--text", "--mark"].map((name) => `rgb(${rgb(name).join(" ")})`);
  // Every label where there is room, else some, and none over that of what is chosen.
  const isShown = (number, chosen) => number === chosen ||
    (number % Math.ceil(14 / cell) === 0 && Math.abs(number - chosen) * cell >= 14);
  context.font = "13px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.textAlign = "right";
  queries.forEach((label, number) => {
    if (!isShown(number, state.query)) return;
    context.fillStyle = number === state.query ? mark : text;
    context.fillText(cut(context, label, left - 8), left - 5, top + (number + 0.5) * cell);
  });
  context.save();
  context.rotate(-Math.PI / 2);
  context.textAlign = "left";
  keys.forEach((label, number) => {
    if (!isShown(number, state.key)) return;
    context.fillStyle = number === state.key ? mark : text;
    context.fillText(cut(context, label, top - 8), -top + 5, left + (number + 0.5) * cell);
  });
  context.restore();
  context.strokeStyle = mark;
  context.lineWidth = 2;
  context.strokeRect(left + state.key * cell, top + state.query * cell, cell, cell);
}

function cut(context, label, width) {
  if (context.measureText(label).width <= width) return label;
  const letters = [...label];
  while (letters.length > 1 && context.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}
