"use strict";
// Queries at the left, keys at the right, and lines between them, as in BertViz.
const HEIGHT = 26; // of a token, as in the styles
const FAINT = 0.04; // lines of less weight are not drawn where those of all queries are
const SVG = "http://www.w3.org/2000/svg";

const tokensView = {
  title: "Tokens",
  fits: () => current().queries.kind !== "patches" && ["tokens", "objects"].includes(current().keys.kind),

  build(root) {
    const stack = current();
    this.isAll ??= stack.rows <= 40;
    const all = element("input", { type: "checkbox", id: "all", change: (event) => {
      this.isAll = event.target.checked;
      this.update();
    } });
    all.checked = this.isAll;
    this.queries = stack.queries.labels.map((label, query) => element("li", {
      role: "option", id: `query${query}`, dir: "auto", title: shown(label), click: () => change({ query }),
    }, shown(label)));
    this.keys = [...Array(stack.columns).keys()].map((key) =>
      element("li", { dir: "auto", title: keyLabel(stack, key) }, keyLabel(stack, key)));
    this.list = element("ul", { class: "column queries", role: "listbox", tabindex: 0,
      "aria-label": "Queries; arrows choose one", keydown: (event) => moveQuery(event) }, ...this.queries);
    this.lines = document.createElementNS(SVG, "svg");
    this.lines.setAttribute("aria-hidden", "true");
    this.lines.style.height = `${HEIGHT * Math.max(stack.rows, stack.columns)}px`;
    const keys = element("ul", { class: "column keys", "aria-label": "Keys" }, ...this.keys);
    root.append(
      element("p", {}, all, element("label", { for: "all" }, " lines of all queries")),
      element("div", { class: "lines" },
        element("span", { class: "heading column queries" }, "query"), element("span"),
        element("span", { class: "heading" }, "key"), this.list, this.lines, keys));
    this.update();
  },

  update() {
    const stack = current();
    const values = currentWeights();
    const row = rowOf(stack, values, state.query);
    const most = greatestOf(row);
    this.queries.forEach((node, query) => {
      node.classList.toggle("selected", query === state.query);
      node.setAttribute("aria-selected", String(query === state.query));
    });
    this.list.setAttribute("aria-activedescendant", `query${state.query}`);
    this.keys.forEach((node, key) => shade(node, most > 0 ? row[key] / most : 0));
    const others = this.isAll ? [...Array(stack.rows).keys()].filter((query) => query !== state.query) : [];
    const lines = others.flatMap((query) => this.rowLines(rowOf(stack, values, query), query, FAINT, 0.3));
    this.lines.replaceChildren(...lines, ...this.rowLines(row, state.query, 0.01, 1));
    sayRow(stack, values, state.query);
  },

  rowLines(row, query, least, strength) {
    const lines = [];
    row.forEach((weight, key) => {
      if (weight < least) return;
      const line = document.createElementNS(SVG, "line");
      line.setAttribute("x1", "0");
      line.setAttribute("x2", "100%");
      line.setAttribute("y1", String((query + 0.5) * HEIGHT));
      line.setAttribute("y2", String((key + 0.5) * HEIGHT));
      line.setAttribute("stroke-opacity", String(Math.min(0.08 + weight * 0.92, 1) * strength));
      line.setAttribute("stroke-width", String(1 + weight * 2.5 * strength));
      lines.push(line);
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
