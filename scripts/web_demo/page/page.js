// The page: asks what the model is, sends what a person tries, and shows the prediction and its attention.

import { element, show, showImage, showSound } from "./answers.js";
import { clear, drawn, drawOn } from "./drawing.js";
import { asWav, record } from "./sound.js";

const at = (id) => document.getElementById(id);
const VERBS = {
  "translation": "Translate", "text-generation": "Complete", "automatic-speech-recognition": "Transcribe",
  "object-detection": "Detect", "fill-mask": "Fill in", "contact-prediction": "Predict",
};

let model; // the facts about it
let sound = null; // what was recorded
let isAnswered = false; // an answer is shown
let turn = 0; // of requests: an answer to an earlier one is not shown

/** Send JSON; throws the server's sentence where it refuses. */
async function send(path, content) {
  let response;
  try {
    response = await fetch(path, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content),
    });
  } catch {
    throw new Error("the server does not answer; is qkv demo still running?");
  }
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

function complain(message) {
  at("error").textContent = message;
  at("error").hidden = !message;
}

/** Show the fields that the model needs. */
function prepare() {
  document.title = `${model.name} – qkv demo`;
  at("name").textContent = model.title || model.name;
  const size = model.parameters.toLocaleString("en");
  at("about").textContent = `${model.title ? `${model.name}: ` : ""}${model.class}, ${size} parameters, ${model.task}`;
  at("limits").textContent = model.limits;
  const isText = model.medium === "text";
  at("texts").hidden = !isText;
  at("pairs").hidden = !model.pairs;
  at("drawing").hidden = !model.draws;
  at("microphone").hidden = model.medium !== "audio";
  at("files").hidden = isText;
  at("choices").hidden = model.task !== "zero-shot-image-classification";
  at("threshold-field").hidden = model.task !== "object-detection";
  at("sampling").hidden = !["text-generation", "translation"].includes(model.task);
  at("file").accept = model.medium === "audio" ? "audio/*" : "image/*";
  at("file-label").textContent = { audio: "Or a sound file", image: model.draws ? "Or an image" : "Image" }[model.medium] ?? "";
  if (isText) at("text").value = model.example;
  if (model.mask) at("text-label").textContent = `Text, with ${model.mask} where a word is to be filled in`;
  if (model.task === "zero-shot-image-classification") at("labels").value = model.example.split(", ").join("\n");
  at("threshold").value = model.threshold;
  at("threshold-value").textContent = model.threshold;
  at("max_new_tokens").max = model.most.tokens;
  at("submit").textContent = VERBS[model.task] ?? "Classify";
  at("submit").disabled = false;
  clear(at("canvas"));
}

const options = () => {
  const fields = at("sampling").hidden ? [] : ["temperature", "max_new_tokens"];
  if (!at("threshold-field").hidden) fields.push("threshold");
  return Object.fromEntries(fields.map((id) => [id, at(id).valueAsNumber]).filter(([, value]) => !Number.isNaN(value)));
};

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error("the browser cannot read this file; choose it again"));
    reader.readAsDataURL(file);
  });
}

/** Return the file that was drawn, recorded or chosen; the last of them that a person made. */
async function chosenFile() {
  const own = at("file").files[0] ?? sound ?? (model.draws ? await drawn(at("canvas")) : null);
  if (!own) throw new Error(model.draws ? "draw a character, or choose an image" : "choose a file first");
  if (own.size > model.most.bytes) {
    throw new Error(`the file has ${own.size.toLocaleString("en")} bytes, at most ${model.most.bytes.toLocaleString("en")}; choose a smaller one`);
  }
  return model.medium === "audio" ? asWav(own) : own;
}

/** Throw a sentence for a text that the server would refuse. */
function checkText(id, what) {
  const text = at(id).value;
  if (!text.trim()) throw new Error(`${what} is empty; write one`);
  if (id === "text" && model.mask && !text.includes(model.mask)) throw new Error(`the text has no ${model.mask}; write it where a word is to be filled in`);
  const most = model.most.characters;
  if (text.length > most) throw new Error(`${what} has ${text.length.toLocaleString("en")} characters, at most ${most.toLocaleString("en")}; shorten it`);
}

/** Show no prediction any more. */
function forget() {
  isAnswered = false;
  at("answer").replaceChildren(element("p", "Nothing yet.", "quiet"));
  at("media").replaceChildren();
  at("view").replaceChildren();
  at("readout").textContent = "";
}

async function predict() {
  const own = ++turn;
  complain("");
  at("answer").classList.add("busy");
  try {
    if (model.medium === "text") checkText("text", "the text");
    if (model.pairs) checkText("pair", "the second text");
    const file = model.medium === "text" ? null : await chosenFile();
    const content = { text: at("text").value, pair: at("pair").value, labels: at("labels").value, options: options() };
    if (file) content.file = await base64(file);
    const answer = await send("predict", content);
    if (own !== turn) return;
    show(at("answer"), answer, model.task === "text-generation" ? content.text : "");
    if (model.medium === "image" && at("file").files.length) await showImage(at("media"), file, answer);
    else at("media").replaceChildren(); // what is drawn is seen already
    if (model.medium === "audio") showSound(at("media"), file);
    isAnswered = true;
    attend(own, answer.attention);
  } catch (error) {
    if (own === turn) forget(), complain(error.message);
  } finally {
    if (own === turn) at("answer").classList.remove("busy");
  }
}

/** Show the page of attention of an answer. */
async function attend(own, page) {
  at("readout").textContent = "Reading what the model attended to …";
  try {
    await send("attention", { page });
  } catch (error) {
    if (own === turn) at("view").replaceChildren(), (at("readout").textContent = error.message);
    return;
  }
  if (own !== turn) return;
  const frame = element("iframe");
  frame.title = "Attention";
  frame.src = page;
  at("view").replaceChildren(frame);
  const alone = element("a", "Open it on a page of its own");
  alone.target = "_blank";
  alone.href = page;
  at("readout").replaceChildren(alone);
}

async function listen() {
  const button = at("record");
  if (button.stop) return button.stop();
  complain("");
  try {
    const recording = await record(model.most.seconds);
    button.stop = recording.stop;
    button.textContent = "Stop";
    button.setAttribute("aria-pressed", "true");
    at("recorded").textContent = "recording …";
    at("file").value = "";
    sound = await recording.sound;
    at("recorded").textContent = "";
    await predict();
  } catch (error) {
    complain(error.message);
  } finally {
    delete button.stop;
    button.textContent = "Record";
    button.setAttribute("aria-pressed", "false");
  }
}

function watch() {
  at("form").addEventListener("submit", (event) => (event.preventDefault(), predict()));
  at("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) predict();
  });
  drawOn(at("canvas"), () => ((at("file").value = ""), predict()));
  at("clear").addEventListener("click", () => clear(at("canvas")));
  at("file").addEventListener("change", () => at("file").files.length && ((sound = null), predict()));
  at("record").addEventListener("click", listen);
  at("threshold").addEventListener("input", () => { at("threshold-value").textContent = at("threshold").value; });
  at("threshold").addEventListener("change", () => isAnswered && predict());
}

try {
  model = await (await fetch("facts")).json();
  prepare();
  watch();
} catch {
  complain("the server does not answer; is qkv demo still running?");
}
