"""Write the Python programs of a card; test_usage.py runs them unchanged."""

import json
from pathlib import Path
from typing import Any

from qkv.scripts.common.templates import render
from qkv.scripts.publishing.card.model import OF_CHAINS, CardModel

TEMPLATES = Path(__file__).with_name("templates")
# Fields with the maximum length of a decoder, and the length of Whisper's prompt.
ENDS, STARTS = ("max_target_positions", "max_position_embeddings"), 4
# Inputs of models of texts, and of models of proteins: the residues at the beginning of crambin.
SENTENCE, PROTEIN = "The sky is blue.", "T T C C P S I V A R S N F N V C R L P G"
# The limit of transformers' own speech recognition pipeline.
MOST = 256


def programs(subject: CardModel, prompt: str | list[str] = "", usage: str = "", *, pair: str = "") -> list[str]:
    """Return programs that use the model: a pipeline where its task has one, and the Auto class.

    `prompt` is a text such as those that the model was trained on, or labels, in a list or separated by commas; `pair`
    is a second text that is read with it. A task may have a program of its own, `usage`, in which `model=...` stands
    for the model.
    """
    reads, trust = subject.processor, "" if subject.native else ", trust_remote_code=True"
    if usage and reads:
        return [usage.replace("model=...", f'model="{subject.address}"{trust}')]
    protein = PROTEIN.replace(" ", "") if subject.architecture.endswith("FoldingModel") else PROTEIN
    example = protein if subject.architecture.endswith(OF_CHAINS) else SENTENCE
    facts = {
        "pair": quoted(pair) if pair else "",
        "text": quoted(prompt or example),
        "masked": quoted(prompt or "The sky is {mask}."),
        "labels": quoted(prompt.split(", ") if isinstance(prompt, str) and prompt else prompt or ["a cat", "a dog"]),
        # The recipe's labels unchanged; by default the pipeline puts each into a sentence.
        "hypothesis": ', hypothesis_template="{}"' if prompt else "",
        "room": room(subject.config),
        "ends": bool(subject.config.get("is_encoder_decoder")),
    }
    templates = ("pipeline.py.j2", "auto_class.py.j2") if reads else ("auto_class.py.j2",)
    made = (render(TEMPLATES / name, subject=subject, reads=reads, trust=trust, **facts) for name in templates)
    return [program.strip() for program in made if program.strip()]


def quoted(value: Any) -> str:
    """Return a text or a list of texts as a Python literal."""
    return json.dumps(value, ensure_ascii=False)


def room(config: dict[str, Any]) -> int:
    """Return `max_new_tokens`: a few, and room for a whole output where the model is an encoder-decoder."""
    if not config.get("is_encoder_decoder"):
        return 20
    decoder = config.get("decoder", config)
    longest = min((decoder[name] for name in ENDS if decoder.get(name)), default=MOST + STARTS)
    return min(MOST, max(longest - STARTS, 1))
