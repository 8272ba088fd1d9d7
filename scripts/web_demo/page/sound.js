// Sound from the microphone or a file, as a wav file of one channel.

const RATE = 16000;

/** Record from the microphone for at most some seconds; returns a function that ends it, and a promise of the sound. */
export async function record(seconds) {
  if (!navigator.mediaDevices) throw new Error("the browser gives no microphone to this address; open 127.0.0.1 or https");
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const recorder = new MediaRecorder(stream);
  const pieces = [];
  recorder.addEventListener("dataavailable", (event) => pieces.push(event.data));
  const sound = new Promise((resolve) => {
    recorder.addEventListener("stop", () => {
      for (const track of stream.getTracks()) track.stop();
      resolve(new Blob(pieces, { type: recorder.mimeType }));
    });
  });
  recorder.start();
  const stop = () => recorder.state !== "inactive" && recorder.stop();
  setTimeout(stop, 1000 * (seconds - 0.5));
  return { stop, sound };
}

/** Return a sound as a wav file; one that is a wav file already stays as it is. */
export async function asWav(blob) {
  const head = new Uint8Array(await blob.slice(0, 4).arrayBuffer());
  if (String.fromCharCode(...head) === "RIFF") return blob;
  const decoder = new OfflineAudioContext(1, 1, RATE); // decodes to its own rate
  let decoded;
  try {
    decoded = await decoder.decodeAudioData(await blob.arrayBuffer());
  } catch {
    throw new Error("the browser cannot read this sound; choose a wav file");
  }
  return new Blob([header(decoded.length), samplesOf(decoded)], { type: "audio/wav" });
}

function samplesOf(decoded) {
  const samples = new Int16Array(decoded.length);
  for (let channel = 0; channel < decoded.numberOfChannels; channel++) {
    const own = decoded.getChannelData(channel);
    for (let i = 0; i < own.length; i++) {
      const value = (32767 * Math.max(-1, Math.min(1, own[i]))) / decoded.numberOfChannels;
      samples[i] += Math.round(value);
    }
  }
  return samples;
}

function header(length) {
  const view = new DataView(new ArrayBuffer(44));
  const write = (place, text) => [...text].forEach((letter, i) => view.setUint8(place + i, letter.charCodeAt(0)));
  write(0, "RIFF"), view.setUint32(4, 36 + 2 * length, true), write(8, "WAVEfmt ");
  view.setUint32(16, 16, true), view.setUint16(20, 1, true), view.setUint16(22, 1, true);
  view.setUint32(24, RATE, true), view.setUint32(28, 2 * RATE, true);
  view.setUint16(32, 2, true), view.setUint16(34, 16, true);
  write(36, "data"), view.setUint32(40, 2 * length, true);
  return view;
}
