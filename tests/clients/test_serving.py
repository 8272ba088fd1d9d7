"""`transformers serve` answers OpenAI's client for a folder of ours as for the stock one, with the tokens of `generate`."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import client_models as models
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

openai = pytest.importorskip("openai", reason="`make clients` installs it", exc_type=ImportError)
pytest.importorskip("fastapi", reason="`make clients` installs it", exc_type=ImportError)

# What the command `transformers` runs, in a process that does not import qkv, and in one that does.
COMMAND = "import sys; from transformers.cli.transformers import main; sys.exit(main())"
TRUST = "--trust-remote-code"
WAYS: dict[str, tuple[str, list[str]]] = {
    "with the code of the folder": (COMMAND, [TRUST]),
    "with qkv imported": (f"import qkv; {COMMAND}", []),
    "in continuous batches": (COMMAND, [TRUST, "--continuous-batching", "--cb-num-blocks", "64"]),
}
ADDRESS = re.compile(r"Uvicorn running on (http://127\.0\.0\.1:\d+)")
TEXT = "what is 1 + 2?"
COUNT = 8


@contextmanager
def client(folder: Path, program: str, options: list[str]) -> Iterator[Any]:
    """A client of a server that holds the model of a folder."""
    words = ["serve", str(folder), "--host", "127.0.0.1", "--port", "0", "--device", "cpu", "--dtype", "float32"]
    path = folder.with_suffix(".log")
    with path.open("w") as log:
        process = subprocess.Popen([sys.executable, "-P", "-c", program, *words, *options], cwd=folder, stderr=log)
    try:
        while not (found := ADDRESS.search(path.read_text())):
            if process.poll() is not None:
                raise RuntimeError(path.read_text())
            time.sleep(0.2)
        with openai.OpenAI(base_url=f"{found[1]}/v1", api_key="none", max_retries=0, timeout=60) as made:
            yield made
    finally:
        process.terminate()
        process.wait(60)


def answers(made: Any, model: str) -> dict[str, str]:
    """What a server says to the text, by every kind of request, as a whole and in pieces."""
    asked = {"model": model, "temperature": 0.0}
    chat = {**asked, "messages": [{"role": "user", "content": TEXT}], "max_tokens": COUNT}
    plain = {**asked, "prompt": TEXT, "max_tokens": COUNT}
    response = {**asked, "input": TEXT, "max_output_tokens": COUNT}
    pieces = made.chat.completions.create(**chat, stream=True)
    parts = made.completions.create(**plain, stream=True)
    events = made.responses.create(**response, stream=True)
    return {
        "chat": made.chat.completions.create(**chat).choices[0].message.content,
        "chat, in pieces": "".join(piece.choices[0].delta.content or "" for piece in pieces),
        "completion": made.completions.create(**plain).choices[0].text,
        "completion, in pieces": "".join(part.choices[0].text for part in parts),
        "response": made.responses.create(**response, stream=False).output_text,
        "response, in pieces": "".join(each.delta for each in events if each.type == "response.output_text.delta"),
    }


def own_answer(model: PreTrainedModel, ids: torch.Tensor) -> str:
    settings = {"max_new_tokens": COUNT, "do_sample": False, "pad_token_id": 1}
    text = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)[0, ids.shape[1] :]
    return models.tokenizer().decode(text, skip_special_tokens=True)


@pytest.mark.parametrize(("kind", "way"), [("llama", way) for way in WAYS] + [("gpt2", "with the code of the folder")])
def test_requests(
    kind: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side_by_side: Callable[..., None]
) -> None:
    for name, value in {"NO_PROXY": "127.0.0.1", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    tokenizer = models.tokenizer()
    program, options = WAYS[way]

    def ask(model: PreTrainedModel) -> list[float]:
        folder = tmp_path / type(model).__name__
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        with client(folder, program, options) as made:
            found = answers(made, str(folder))
        chat = tokenizer.apply_chat_template([{"role": "user", "content": TEXT}], return_tensors="pt", return_dict=True)
        of_chat, of_text = (
            own_answer(model, given["input_ids"]) for given in (chat, tokenizer([TEXT], return_tensors="pt"))
        )
        assert len(set(of_chat)) > 2
        assert found == {name: of_text if "completion" in name else of_chat for name in found}
        return [float(ord(letter)) for text in found.values() for letter in text]

    both = models.both(kind, AutoModelForCausalLM)
    side_by_side("transformers serve", f"chats, completions, responses, {way}", ask, *both)
