// Heat maps of attention: tokens by tokens, or over a picture.

const LONGEST = 14; // characters of a name that are drawn
const FONT = "12px system-ui, sans-serif";

/** Return a name as it is drawn: spaces and line ends are seen, long ones cut. */
function shown(name) {
  const text = name.replace(/\n/g, "⏎").trim() || "␣";
  const letters = [...text];
  return letters.length > LONGEST ? `${letters.slice(0, LONGEST - 1).join("")}…` : text;
}

const percent = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;
const heat = () => getComputedStyle(document.documentElement).getPropertyValue("--heat");
const ink = () => getComputedStyle(document.documentElement).getPropertyValue("--ink");

/** Return a canvas of a size in CSS pixels, and its context, sharp on every screen. */
function sharp(width, height) {
  const canvas = document.createElement("canvas");
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.setAttribute("role", "img");
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return [canvas, context];
}

/** Draw weights of rows on columns into a box; `tell` is called with a sentence on the cell under the pointer. */
export function drawMatrix(box, map, tell) {
  const { weights, rows, columns, seconds } = map;
  const [, ruler] = sharp(1, 1);
  ruler.font = FONT;
  const widest = (names) => Math.max(...names.map((name) => ruler.measureText(shown(name)).width)) + 8;
  const left = Math.min(widest(rows), 120);
  const width = Math.max(seconds ? 2 : 16, Math.min(30, Math.floor((box.clientWidth - left - 4) / columns.length)));
  const height = 18;
  const top = seconds ? 20 : Math.min(widest(columns), 120);
  const [canvas, context] = sharp(left + width * columns.length + 4, top + height * rows.length + 4);
  canvas.setAttribute("aria-label", `attention of ${rows.length} on ${columns.length} positions`);
  context.font = FONT;
  context.fillStyle = ink();
  context.textBaseline = "middle";
  context.textAlign = "right";
  rows.forEach((name, row) => context.fillText(shown(name), left - 4, top + (row + 0.5) * height));
  context.textAlign = "left";
  if (seconds) {
    context.fillText("0 s", left, 10);
    context.textAlign = "right";
    context.fillText(`${seconds.toFixed(1)} s`, left + width * columns.length, 10);
  } else {
    columns.forEach((name, column) => {
      context.save();
      context.translate(left + (column + 0.5) * width, top - 4);
      context.rotate(-Math.PI / 2);
      context.fillText(shown(name), 0, 0);
      context.restore();
    });
  }
  const most = Math.max(...weights.flat(), 1e-9);
  weights.forEach((row, y) => row.forEach((weight, x) => {
    context.fillStyle = `rgba(${heat()}, ${weight / most})`;
    context.fillRect(left + x * width, top + y * height, width - (width > 6 ? 1 : 0), height - 1);
  }));
  const place = (x) => (seconds ? `${((x * seconds) / columns.length).toFixed(2)} s` : `“${columns[x]}”`);
  canvas.addEventListener("pointermove", (event) => {
    const x = Math.floor((event.offsetX - left) / width), y = Math.floor((event.offsetY - top) / height);
    if (rows[y] !== undefined && columns[x] !== undefined) tell(`“${rows[y]}” → ${place(x)}: ${percent(weights[y][x])}`);
  });
  box.replaceChildren(canvas);
}

/** Draw the weights of one row on the patches of a picture. */
export async function drawOverPicture(box, map, row, tell) {
  const [rows, columns] = map.grid;
  const picture = new Image();
  picture.src = map.picture;
  await picture.decode();
  const width = Math.min(360, box.clientWidth || 360), height = (width * picture.naturalHeight) / picture.naturalWidth;
  const [canvas, context] = sharp(width, height);
  canvas.setAttribute("aria-label", `attention from ${map.rows[row]} over the picture`);
  context.imageSmoothingEnabled = false;
  context.filter = "grayscale(1)";
  context.drawImage(picture, 0, 0, width, height);
  context.filter = "none";
  const weights = map.weights[row];
  const most = Math.max(...weights, 1e-9);
  const cell = [width / columns, height / rows];
  weights.forEach((weight, i) => {
    context.fillStyle = `rgba(230, 90, 20, ${(0.8 * weight) / most})`;
    context.fillRect((i % columns) * cell[0], Math.floor(i / columns) * cell[1], cell[0], cell[1]);
  });
  canvas.addEventListener("pointermove", (event) => {
    const x = Math.floor(event.offsetX / cell[0]), y = Math.floor(event.offsetY / cell[1]);
    const weight = weights[y * columns + x];
    if (weight !== undefined) tell(`${map.rows[row]} → row ${y + 1}, column ${x + 1}: ${percent(weight)}`);
  });
  box.replaceChildren(canvas);
}
