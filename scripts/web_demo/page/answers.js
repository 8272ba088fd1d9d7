// Show predictions. Whatever a person or a model wrote is set as text, never as HTML.

const COLORS = ["#e4572e", "#2a9d8f", "#b5179e", "#3a86ff", "#e9a700", "#6a994e"];

/** Make an element with text and class. */
export function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  if (text !== "") made.textContent = text;
  if (className) made.className = className;
  return made;
}

/** Show an answer of the server; `prompt` is what a text goes on from. */
export function show(box, answer, prompt) {
  const kind = Object.keys(SHOW).find((name) => name in answer);
  box.replaceChildren(...SHOW[kind](answer, prompt));
}

const SHOW = {
  scores: ({ scores }) => scores.map(({ label, score }, i) => {
    const row = element("div", "", i ? "score" : "score best");
    const bar = element("span", "", "bar");
    bar.style.width = `${100 * score}%`;
    const name = element("span", label);
    name.dir = "auto";
    row.append(bar, name, element("span", `${(100 * score).toFixed(1)} %`, "number"));
    return row;
  }),
  text: ({ text }, prompt) => {
    const made = element("p", "", "text");
    made.dir = "auto";
    if (prompt) made.append(element("span", prompt, "prompt"));
    made.append(text || (prompt ? "" : "(an empty text)"));
    return [made];
  },
  number: ({ number }) => [element("p", String(Number(number.toPrecision(6))), "text")],
  entities: ({ entities }) => {
    if (!entities.length) return [element("p", "No entity.", "quiet")];
    const made = element("p", "", "text");
    made.dir = "auto";
    for (const { text, label } of entities) {
      const mark = element("mark", text);
      mark.append(element("small", label ?? "none"));
      made.append(mark, " ");
    }
    return [made];
  },
  boxes: ({ boxes }) => {
    if (!boxes.length) return [element("p", "No object reaches this score; lower it.", "quiet")];
    return boxes.map(({ category, score }, i) => {
      const row = element("div", "", "score");
      const name = element("span", category);
      name.style.borderInlineStart = `.5rem solid ${COLORS[i % COLORS.length]}`;
      name.style.paddingInlineStart = ".5rem";
      row.append(name, element("span", `${(100 * score).toFixed(1)} %`, "number"));
      return row;
    });
  },
};

/** Show the image that was sent, with the boxes of an answer; a browser may not know its format. */
export async function showImage(box, file, answer) {
  let picture;
  try {
    picture = await createImageBitmap(file);
  } catch {
    return box.replaceChildren();
  }
  const scale = picture.width < 360 ? Math.ceil(360 / picture.width) : Math.min(1, 1200 / picture.width);
  const canvas = element("canvas");
  canvas.width = picture.width * scale;
  canvas.height = picture.height * scale;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "the image that was sent, with its boxes");
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = scale < 1;
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  context.lineWidth = 3;
  context.font = "bold 15px system-ui, sans-serif";
  (answer.boxes || []).forEach(({ bbox, category, score }, i) => {
    const [x, y, width, height] = bbox.map((side, n) => side * (canvas[n % 2 ? "height" : "width"] / answer.size[n % 2]));
    context.strokeStyle = context.fillStyle = COLORS[i % COLORS.length];
    context.strokeRect(x, y, width, height);
    const label = `${category} ${score.toFixed(2)}`;
    const above = y > 20 ? y - 20 : y;
    context.fillRect(x, above, context.measureText(label).width + 10, 20);
    context.fillStyle = "#fff";
    context.fillText(label, x + 5, above + 15);
  });
  box.replaceChildren(canvas);
}

/** Show a recording with what plays it. */
export function showSound(box, file) {
  const player = element("audio");
  player.controls = true;
  player.src = URL.createObjectURL(file);
  box.replaceChildren(player);
}
