"use strict";
const VIEWS = [tokensView, keysView, matrixView, filmView, overviewView];
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
  filmView.timer && filmView.stop();
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
  state.stack = number;
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
  } else if (event.key === " " && active() === filmView && !event.target.closest("button, summary, input[type=checkbox]")) {
    event.preventDefault();
    filmView.play();
  }
}

async function start() {
  document.getElementById("title").textContent = shown(DATA.title);
  document.getElementById("answer").textContent = DATA.answer;
  document.getElementById("notes").replaceChildren(...DATA.notes.map((note) => element("li", { dir: "auto" }, note)));
  if (!("DecompressionStream" in window)) {
    say("This browser is too old to unpack the weights; Chrome 80, Firefox 113 or Safari 16.4 can.");
    return;
  }
  await Promise.all(DATA.stacks.map(unpackStack));
  state.stack = Math.max(DATA.stacks.findIndex((stack) => stack.name.endsWith("cross")), 0);
  state.layer = current().layers.length - 1;
  show(available()[0]);
  document.addEventListener("keydown", shortcut);
  window.addEventListener("resize", () => active().update());
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(active()));
  document.body.dataset.ready = "true";
}

start();
