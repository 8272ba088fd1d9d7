"""Write the Python programs of a card; test_usage.py runs them as they stand there."""

import json
from typing import Any

from qkv.scripts.publishing.card.heads import FEW, LABELS, MASKED, TEXT
from qkv.scripts.publishing.card.model import CardModel


def snippets(subject: CardModel, prompt: str = "", usage: str = "") -> list[str]:
    """Return programs that use the model: a pipeline where its task has one, and the Auto class.

    `prompt` is a text such as those that the model was trained on. A task may have a program of its own, `usage`, in
    which `model=...` stands for the model.
    """
    head = subject.head
    if usage and subject.place.processor:
        return [usage.replace("model=...", f'model="{subject.repo}"{trust(subject)}')]
    piped = [pipeline(subject)] if head.pipeline and subject.place.processor else []
    programs = [with_room(program, subject) for program in (*piped, by_hand(subject))]
    return (
        [with_prompt(program, json.dumps(prompt, ensure_ascii=False)) for program in programs] if prompt else programs
    )


def with_room(program: str, subject: CardModel) -> str:
    """Return the program with `max_new_tokens` for a whole output, where the model is an encoder-decoder."""
    if not subject.config.get("is_encoder_decoder"):
        return program
    decoder = subject.config.get("decoder", subject.config)
    room = min((decoder[name] for name in ENDS if decoder.get(name)), default=MOST + STARTS)
    return program.replace(FEW, f"max_new_tokens={min(MOST, max(room - STARTS, 1))}")


# Fields with the maximum length of a decoder, and the length of Whisper's prompt.
ENDS, STARTS = ("max_target_positions", "max_position_embeddings"), 4
# The limit of transformers' own speech recognition pipeline.
MOST = 256


def with_prompt(program: str, prompt: str) -> str:
    """Return the program with another text, or with other labels, separated by commas in the prompt."""
    labels = json.dumps(json.loads(prompt).split(", "), ensure_ascii=False)
    # As they stand, where the pipeline would make each a sentence of its own.
    program = program.replace(f"candidate_labels={LABELS}", f'candidate_labels={labels}, hypothesis_template="{{}}"')
    return program.replace(LABELS, labels).replace(TEXT, prompt).replace(f'"{MASKED}"', prompt)


def pipeline(subject: CardModel) -> str:
    """Return the program that uses a pipeline."""
    head = subject.head
    imports, lines = head.before
    return "\n".join(
        (
            f"{imports}from transformers import pipeline",
            "",
            *([lines] if lines else []),
            f'predict = pipeline("{head.tag}", model="{subject.repo}"{trust(subject)})',
            f"print(predict({head.pipeline}))",
        )
    )


def by_hand(subject: CardModel) -> str:
    """Return the program that uses the Auto class; without a processor where the folder has none."""
    head, reads = subject.head, subject.place.processor
    processors = PROCESSORS[subject.frontend] if reads else {}
    libraries = [] if head.generates and reads else ["import torch"]
    libraries += ["from PIL import Image"] if "processor" in processors else []
    libraries = [head.before[0].rstrip(), *libraries] if head.before[0] and reads else libraries
    inputs = [load_line(subject, name, loader) for name, loader in processors.items()]
    inputs += [head.inputs] if reads else [numbers(subject)]
    outputs = [f"tokens = model.generate(**inputs, {FEW}, do_sample=False)", "print(tokens)"]
    if not head.generates:
        outputs = ["with torch.no_grad():", "    outputs = model(**inputs)", "print(outputs[0].shape)"]
    lines = [
        *libraries,
        f"from transformers import {', '.join(sorted([subject.auto_class, *processors.values()]))}",
        "",
        f'repo = "{subject.repo}"',
        f"model = {subject.auto_class}.from_pretrained(repo{trust(subject)})",
        *inputs,
        *outputs[:-1],
        head.answer if reads else outputs[-1],
    ]
    return "\n".join(lines)


# The processors for each kind of input, by their names in the programs.
PROCESSORS = {
    "tokens": {"tokenizer": "AutoTokenizer"},
    **dict.fromkeys(("patches", "feature_map"), {"processor": "AutoImageProcessor"}),
    "spectrogram": {"extractor": "AutoFeatureExtractor", "tokenizer": "AutoTokenizer"},
    "both": {"processor": "AutoProcessor"},
}
# Processors whose loading reads the model's config.
READ_CONFIG = ("AutoTokenizer", "AutoProcessor")


def load_line(subject: CardModel, name: str, loader: str) -> str:
    """Return the line that loads a processor."""
    return f"{name} = {loader}.from_pretrained(repo{trust(subject) if loader in READ_CONFIG else ''})"


def numbers(subject: CardModel) -> str:
    """Return inputs for a model without a processor."""
    return NUMBERS.get(subject.frontend, lambda subject: subject.head.numbers)(subject)


def pixels(subject: CardModel) -> str:
    """Return a black image."""
    return f'inputs = {{"pixel_values": {blank(subject.config.get("encoder", subject.config))}}}'


def pairs(subject: CardModel) -> str:
    """Return token ids that end with `eos_token_id`, and a black image."""
    end = subject.config["text_config"]["eos_token_id"]
    ids = f'inputs = {{"input_ids": torch.tensor([[1, 2, {end}]])}}'
    return f'{ids}\ninputs["pixel_values"] = {blank(subject.config["vision_config"])}'


def blank(config: dict[str, Any]) -> str:
    """Return a black image of the config's size; detectors take any size."""
    size = config.get("image_size", 64)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return f"torch.zeros(1, {config['num_channels']}, {height}, {width})"


def frames(subject: CardModel) -> str:
    """Return an empty spectrogram, for stock Whisper of the length it requires."""
    config = subject.config.get("encoder", subject.config)
    bins = config.get("num_mel_bins") or config["input_feat_per_channel"]
    size = f"1, 16, {bins}"
    if config.get("frame_layout") == "bins_first" or subject.model_type == "whisper":
        size = f"1, {bins}, {2 * config['max_source_positions'] if subject.model_type == 'whisper' else 16}"
    given = f'inputs = {{"input_features": torch.zeros({size})}}'
    words = '\ninputs["decoder_input_ids"] = torch.tensor([[1, 2, 3]])'
    takes_tokens = subject.auto_class == "AutoModel" and subject.config.get("is_encoder_decoder")
    return given + words if takes_tokens else given


NUMBERS = {"patches": pixels, "feature_map": pixels, "spectrogram": frames, "both": pairs}


def trust(subject: CardModel) -> str:
    """Return the argument that allows remote code."""
    return "" if subject.native else ", trust_remote_code=True"
