// A canvas to draw one character on, bright on dark, as scans of digits are.

const LINE = 26; // of 280 pixels: what a pen leaves on a digit of that size

/** Let a person draw on a canvas; `finished` is called after each stroke. */
export function drawOn(canvas, finished) {
  const context = canvas.getContext("2d", { willReadFrequently: true });
  let last = null;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [((event.clientX - box.left) * canvas.width) / box.width, ((event.clientY - box.top) * canvas.height) / box.height];
  };
  const stroke = (event) => {
    const next = place(event);
    context.strokeStyle = "#fff";
    context.lineWidth = LINE;
    context.lineCap = context.lineJoin = "round";
    context.beginPath();
    context.moveTo(...last);
    context.lineTo(...next);
    context.stroke();
    last = next;
  };
  canvas.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    canvas.setPointerCapture(event.pointerId);
    last = place(event);
    stroke(event);
  });
  canvas.addEventListener("pointermove", (event) => last && stroke(event));
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, () => {
      if (last) finished();
      last = null;
    });
  }
}

/** Make a canvas black. */
export function clear(canvas) {
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#000";
  context.fillRect(0, 0, canvas.width, canvas.height);
}

/** Return a PNG of what is drawn, centred and as large as its square, as the digits of data sets are; null for nothing. */
export function drawn(canvas) {
  const [left, top, right, bottom] = inkOf(canvas);
  if (right < left) return Promise.resolve(null);
  const width = right - left + 1, height = bottom - top + 1, side = Math.max(width, height);
  const square = document.createElement("canvas");
  square.width = square.height = side;
  clear(square);
  const corner = [Math.floor((side - width) / 2), Math.floor((side - height) / 2)];
  square.getContext("2d").drawImage(canvas, left, top, width, height, ...corner, width, height);
  return new Promise((resolve) => square.toBlob(resolve, "image/png"));
}

function inkOf(canvas) {
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  let left = width, top = height, right = -1, bottom = -1;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (data[4 * (y * width + x)] > 32) {
        left = Math.min(left, x), right = Math.max(right, x);
        top = Math.min(top, y), bottom = Math.max(bottom, y);
      }
    }
  }
  return [left, top, right, bottom];
}
