"""How does a stranger load our folders? With qkv impossible to import: run by `reload.py`, by path, in a fresh process.

Reads jobs as JSON from standard input: `source` (a folder, or a repo with its `revision`), `auto_class`, `inputs` and
`outputs` (safetensors files); optionally `copy`, a folder to save the model to and to load it from once more, or
`pipeline`, a task to run on the file or text `example`, with `options` in JSON, and to put the answer of which into
the file `answer`.
"""

import copy
import json
import sys
import wave
from typing import Any


def load(source: str, auto_class: str, revision: str | None = None) -> Any:
    """The model of a folder or repo, of a class that was loaded from there."""
    import transformers

    loader = getattr(transformers, auto_class)
    model = loader.from_pretrained(source, revision=revision, trust_remote_code=True).eval()
    home = type(model).__module__
    if not home.startswith("transformers_modules."):
        raise RuntimeError(f"{source} was loaded with code from {home}, not with its own")
    # Weights are mapped from the file at odd addresses, which changes the last bits of matrix products.
    return copy.deepcopy(model)


def do(job: dict[str, Any]) -> None:
    """Load, where asked save and load again; write what the model makes of the inputs, the pipeline of the example."""
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    model = load(job["source"], job["auto_class"], job.get("revision"))
    if "copy" in job:
        model.save_pretrained(job["copy"])
        model = load(job["copy"], job["auto_class"])
    with torch.no_grad():
        output = model(**load_file(job["inputs"]))
    tensors = {name: value.contiguous() for name, value in output.items() if isinstance(value, torch.Tensor)}
    save_file(tensors, job["outputs"])
    if "pipeline" in job:
        pipe = transformers.pipeline(
            job["pipeline"], model=job["source"], revision=job.get("revision"), trust_remote_code=True
        )
        with open(job["answer"], "w", encoding="utf-8") as file:
            json.dump(pipe(opened(job["example"]), **json.loads(job.get("options", "{}"))), file)


def opened(example: str) -> Any:
    """The example as a pipeline takes it: what opens recordings by their names is not on every machine."""
    if not example.endswith(".wav"):
        return example
    import numpy

    with wave.open(example) as file:
        samples = numpy.frombuffer(file.readframes(file.getnframes()), numpy.int16) / numpy.float32(32768)
        return {"raw": samples, "sampling_rate": file.getframerate()}


def main() -> None:
    """Do every job."""
    if "qkv" in sys.modules:
        raise RuntimeError("qkv was imported before it could be hidden")
    # From here on importing it fails, however it is installed.
    sys.modules["qkv"] = None  # type: ignore[assignment]
    import torch

    jobs = json.load(sys.stdin)
    torch.set_num_threads(jobs["threads"])
    for job in jobs["jobs"]:
        do(job)


if __name__ == "__main__":
    main()
