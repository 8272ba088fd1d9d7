"use strict";
// What a decoder attended to when it wrote each token, as a film of steps.
const PAUSE = 700; // milliseconds of a step

const filmView = {
  title: "Generation",
  fits: () => DATA.film !== null && filmSteps().length > 0,

  build(root) {
    const steps = filmSteps();
    state.step = bound(state.step, steps.length);
    this.slider = element("input", { type: "range", min: 0, max: steps.length - 1, id: "step",
      "aria-label": "Step of generation", input: (event) => change({ step: Number(event.target.value) }) });
    this.button = element("button", { type: "button", click: () => this.play() }, "Play");
    this.count = element("span");
    this.text = element("p", { dir: "auto" });
    this.best = element("div", { class: "best", "aria-label": "Most probable tokens" });
    this.panels = DATA.film.stacks.map((number) => {
      const stack = DATA.stacks[number];
      return { stack, panel: keyPanel(stack, null) };
    });
    const parts = this.panels.map(({ stack, panel }) =>
      element("section", {}, element("h2", {}, stackTitle(stack)), panel.root));
    root.append(element("div", { class: "film" }, this.button, this.slider, this.count), this.text, this.best, ...parts);
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

  play() {
    if (this.timer) return this.stop();
    if (state.step === filmSteps().length - 1) change({ step: 0 });
    this.button.textContent = "Pause";
    this.timer = setInterval(() => {
      if (state.step === filmSteps().length - 1) this.stop();
      else change({ step: state.step + 1 });
    }, PAUSE);
    return undefined;
  },

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.button.textContent = "Play";
  },
};

// The steps whose rows are among those shown.
function filmSteps() {
  const rows = Math.min(...DATA.film.stacks.map((number) => DATA.stacks[number].rows));
  return DATA.film.steps.filter((step) => step.row < rows);
}
