"use strict";
// What a query attends to: tokens in a row, patches of a picture, or frames of a spectrogram.
function keyPanel(stack, choose) {
  const kind = stack.keys.picture ? stack.keys.kind : "tokens";
  return { patches: picturePanel, frames: soundPanel }[kind]?.(stack, choose) ?? tokenPanel(stack);
}

function tokenPanel(stack) {
  const chips = [...Array(stack.columns).keys()].map((key) =>
    element("li", { dir: "auto", title: keyLabel(stack, key) }, keyLabel(stack, key)));
  const root = element("ul", { class: "chips" }, ...chips);
  const update = (row, last = stack.columns) => {
    const most = greatestOf(row);
    chips.forEach((chip, key) => {
      shade(chip, most > 0 ? row[key] / most : 0);
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
  const before = element("p", { class: "hint" });
  if (choose) {
    picture.append(mark);
    picture.addEventListener("click", (event) => {
      const place = picture.getBoundingClientRect();
      const row = bound(Math.floor((event.clientY - place.top) / place.height * rows), rows);
      const column = bound(Math.floor((event.clientX - place.left) / place.width * columns), columns);
      choose(keys.prefix + row * columns + column);
    });
  }
  const frame = element("div", { class: "frame" });
  if (queries.boxes) picture.append(frame);
  const update = (row, _, query = state.query) => {
    drawOverlay(canvas, row.subarray(keys.prefix, keys.prefix + rows * columns), columns);
    before.textContent = keys.labels.slice(0, keys.prefix)
      .map((label, key) => `${shown(label)}: ${percent(row[key])}`).join("; ");
    const patch = query - keys.prefix;
    mark.hidden = patch < 0;
    set(mark, [patch % columns / columns, Math.floor(patch / columns) / rows, 1 / columns, 1 / rows]);
    if (queries.boxes) set(frame, within(queries.boxes[query]));
  };
  return { root: element("div", {}, picture, before), update };
}

// The part of a box that lies in the picture.
function within([left, top, width, height]) {
  const [x, y] = [Math.max(left, 0), Math.max(top, 0)];
  return [x, y, Math.max(Math.min(left + width, 1) - x, 0), Math.max(Math.min(top + height, 1) - y, 0)];
}

function set(node, [left, top, width, height]) {
  Object.assign(node.style, {
    left: `${left * 100}%`, top: `${top * 100}%`, width: `${width * 100}%`, height: `${height * 100}%`,
  });
}

function soundPanel(stack, choose) {
  const { keys } = stack;
  const over = element("canvas", { class: "over" });
  const curve = element("canvas", { class: "curve" });
  const image = element("img", { src: keys.picture, alt: "Spectrogram: time to the right, frequency upwards" });
  const sound = element("div", { class: "sound" }, image, over, curve);
  if (choose) {
    sound.addEventListener("click", (event) => {
      const place = sound.getBoundingClientRect();
      choose(bound(Math.floor((event.clientX - place.left) / place.width * keys.labels.length), keys.labels.length));
    });
  }
  const axis = element("div", { class: "axis" }, element("span", {}, shown(keys.labels[0])),
    element("span", {}, "time"), element("span", {}, shown(keys.labels[keys.labels.length - 1])));
  const update = (row) => {
    drawOverlay(over, row.subarray(0, keys.labels.length), keys.labels.length, [11, 92, 173], 0.65);
    drawCurve(curve, row.subarray(0, keys.labels.length));
  };
  return { root: element("div", {}, sound, axis), update };
}

function drawCurve(canvas, row) {
  const most = greatestOf(row);
  [canvas.width, canvas.height] = [Math.max(row.length * 8, 600), 70];
  const context = canvas.getContext("2d");
  const width = canvas.width / row.length;
  context.fillStyle = "#0b5cad";
  row.forEach((weight, key) => {
    const height = most > 0 ? weight / most * 66 : 0;
    context.fillRect(key * width, 70 - height, Math.max(width - 1, 1), height);
  });
}

// A list of queries from which one is chosen: words above a spectrogram, objects beside a picture.
function queryList(stack, first = 0, last = stack.rows) {
  const chips = stack.queries.labels.slice(first, last).map((label, index) => element("li", {
    role: "option", id: `query${first + index}`, dir: "auto", title: shown(label),
    click: () => change({ query: first + index }),
  }, shown(label)));
  const root = element("ul", { class: "chips choice", role: "listbox", tabindex: 0,
    "aria-label": "Queries; arrows choose one", keydown: (event) => moveQuery(event) }, ...chips);
  const update = () => {
    chips.forEach((chip, index) => {
      chip.classList.toggle("selected", first + index === state.query);
      chip.setAttribute("aria-selected", String(first + index === state.query));
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
    this.list = count ? queryList(stack, 0, count) : null;
    const patches = stack.keys.grid ? " Patches are (row, column)." : "";
    const hint = isOwn
      ? `Click a place to see what it attends to, or move with the arrows.${patches}`
      : `Choose a query to see what it attends to.${patches}`;
    const place = isOwn ? { tabindex: 0, role: "group", "aria-label": "Place of the query; arrows move it",
      keydown: (event) => this.move(event) } : {};
    const isSound = stack.keys.kind === "frames";
    const list = this.list ? [this.list.root] : [];
    const plain = isSound ? [] : [element("div", { class: "picture plain" },
      element("img", { src: stack.keys.picture, alt: "The picture alone" }))];
    const map = element("div", place, this.panel.root);
    const parts = isSound ? [...list, map] : [map, element("div", {}, ...list, ...plain)];
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

  move(event) {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const { grid, prefix } = current().keys;
    if (!grid) return moveQuery(event);
    const place = state.query - prefix;
    const [rows, columns] = grid;
    if (place < 0) return change({ query: bound(state.query + step[0] + step[1], prefix + 1) });
    const row = Math.floor(place / columns) + step[0];
    if (row < 0 && prefix) return change({ query: prefix - 1 });
    return change({ query: prefix + bound(row, rows) * columns + bound(place % columns + step[1], columns) });
  },
};
