"use strict";
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
      class: "heads", tabindex: 0, role: "group", keydown: (event) => this.moveHead(event),
      "aria-label": "Layers and heads; arrows choose one",
    });
    const heads = stack.count > 1 ? [MEAN, ...Array(stack.count).keys()] : [MEAN];
    this.heads = heads;
    this.grid.style.gridTemplateColumns = `max-content repeat(${heads.length}, max-content)`;
    const most = window.innerWidth < 600 ? 54 : 84;
    this.grid.style.setProperty("--side", `${Math.max(Math.min(most, Math.floor(900 / heads.length)), 40)}px`);
    this.grid.append(element("span", { class: "corner" }, "layer"));
    for (const head of heads) {
      const name = head === MEAN ? "mean" : `head ${stack.heads[head]}`;
      this.grid.append(element("span", { class: "name column" }, name));
    }
    stack.layers.forEach((number, layer) => {
      this.grid.append(element("span", { class: "name" }, String(number)));
      for (const head of heads) this.grid.append(this.cell(stack, layer, head));
    });
    this.canvas = element("canvas", {
      class: "map", tabindex: 0, role: "img", keydown: (event) => this.moveWeight(event),
      click: (event) => this.point(event), pointermove: (event) => this.point(event),
    });
    this.heading = element("h2");
    const maps = stack.layers.length * heads.length > 1 ? [element("h2", {}, "Layers and heads"),
      element("div", { class: "scroll" }, this.grid)] : [];
    root.append(...maps, this.heading,
      element("p", { class: "hint" }, "Rows are queries, columns keys; each map is drawn from 0 to its greatest weight."),
      element("div", { class: "scroll" }, this.canvas));
    this.update();
  },

  cell(stack, layer, head) {
    const canvas = element("canvas", { class: "map" });
    drawMap(canvas, weightsOf(stack, layer, head), stack.columns);
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

  moveHead(event) {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const head = this.heads[bound(this.heads.indexOf(state.head) + step[1], this.heads.length)];
    change({ layer: bound(state.layer + step[0], current().layers.length), head });
  },

  moveWeight(event) {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const stack = current();
    change({ query: bound(state.query + step[0], stack.rows), key: bound(state.key + step[1], stack.columns) });
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
    this.cells = [];
    root.append(
      element("h2", {}, "Entropy of the attention weights"),
      element("p", { class: "hint" },
        "In bits, the mean over queries: 0 where one key has all the weight, and the more the more keys share it."),
      this.table(stack, stack.entropy, "Entropy by layer and head; arrows choose one"));
    if (!stack.distance) {
      root.append(element("p", { class: "hint" },
        "There is no distance here: queries and keys are not the positions of one sequence."));
    } else {
      const unit = { patches: "patches", frames: "frames" }[stack.keys.kind] ?? "tokens";
      root.append(
        element("h2", {}, "Mean distance of what is attended to"),
        element("p", { class: "hint" }, `In ${unit}, by weight, the mean over queries.`),
        this.table(stack, stack.distance, "Distance by layer and head; arrows choose one"));
    }
    this.update();
  },

  table(stack, values, name) {
    const most = Math.max(...values.flat(), 1e-9);
    const numbers = values[0].map((_, head) => element("th", { scope: "col" }, `head ${head}`));
    if (stack.heads.length) stack.heads.forEach((number, head) => { numbers[head].textContent = `head ${number}`; });
    const rows = values.map((row, layer) => element("tr", {},
      element("th", { scope: "row" }, layerName(stack, layer)),
      ...row.map((value, head) => {
        const cell = element("td", { click: () => this.choose(layer, head) }, value.toFixed(2));
        shade(cell, value / most * 0.9);
        this.cells.push([layer, head, cell]);
        return cell;
      })));
    return element("div", { class: "scroll" }, element("table", {
      class: "numbers", tabindex: 0, "aria-label": name, keydown: (event) => this.move(event),
    }, element("tr", {}, element("th", {}, ""), ...numbers), ...rows));
  },

  choose(layer, head) {
    this.head = head;
    change({ layer, head: current().heads.length > 1 ? head : MEAN });
  },

  update() {
    const stack = current();
    const head = state.head === MEAN ? (current().heads.length > 1 ? 0 : bound(this.head ?? 0, stack.entropy[0].length))
      : state.head;
    this.head = head;
    for (const [layer, own, cell] of this.cells) {
      cell.classList.toggle("selected", layer === state.layer && own === head);
    }
    const distance = stack.distance ? `, distance ${stack.distance[state.layer][head].toFixed(2)}` : "";
    say(`${stackTitle(stack)}, ${layerName(stack, state.layer)}, head ${stack.heads[head] ?? head}: entropy ` +
      `${stack.entropy[state.layer][head].toFixed(2)} bits${distance}`);
  },

  move(event) {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const stack = current();
    this.choose(bound(state.layer + step[0], stack.layers.length), bound(this.head + step[1], stack.entropy[0].length));
  },
};
