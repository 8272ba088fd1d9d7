"""How is a published model used? The Python that stands in its card; test_card_usage.py runs it as it stands there."""

import json
from typing import Any

from qkv.scripts.publishing.card.heads import FEW, GUESSED, LABELS, TEXT
from qkv.scripts.publishing.card.subject import Subject


def snippets(subject: Subject, prompt: str = "", usage: str = "") -> list[str]:
    """Programs that use the model: through a pipeline where its task has one, and through its Auto class.

    They ask about the `prompt`, a text such as those that the model was trained on, where there is one. A task may have
    a program of its own, `usage`, in which `model=...` stands for the model.
    """
    head = subject.head
    if usage and subject.place.get("processor", True):
        return [usage.replace("model=...", f'model="{subject.repo}"{trust(subject)}')]
    piped = [pipeline(subject)] if head.pipeline and subject.place.get("processor", True) else []
    programs = [finishing(program, subject) for program in (*piped, by_hand(subject))]
    return [asked(program, json.dumps(prompt, ensure_ascii=False)) for program in programs] if prompt else programs


def finishing(program: str, subject: Subject) -> str:
    """The program with room for a whole text, where the model says something of its own, which it ends."""
    if not subject.config.get("is_encoder_decoder"):
        return program
    writer = subject.config.get("decoder", subject.config)
    room = min((writer[name] for name in ENDS if writer.get(name)), default=MOST + STARTS)
    return program.replace(FEW, f"max_new_tokens={min(MOST, max(room - STARTS, 1))}")


# Fields that say how many tokens a decoder can write, and how many of them Whisper starts with.
ENDS, STARTS = ("max_target_positions", "max_position_embeddings"), 4
# As many as transformers' own pipeline lets a recogniser write.
MOST = 256


def asked(program: str, prompt: str) -> str:
    """The program with another text, or with other labels, between which the prompt has commas."""
    labels = json.dumps(json.loads(prompt).split(", "), ensure_ascii=False)
    # As they stand, where the pipeline would make each a sentence of its own.
    program = program.replace(f"candidate_labels={LABELS}", f'candidate_labels={labels}, hypothesis_template="{{}}"')
    return program.replace(LABELS, labels).replace(TEXT, prompt).replace(f'"{GUESSED}"', prompt)


def pipeline(subject: Subject) -> str:
    """The program with fewest lines."""
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


def by_hand(subject: Subject) -> str:
    """The program that shows the model's own outputs; the processor is left out where the folder has none."""
    head, reads = subject.head, subject.place.get("processor", True)
    readers = READERS[subject.frontend] if reads else {}
    libraries = [] if head.generates and reads else ["import torch"]
    libraries += ["from PIL import Image"] if "processor" in readers else []
    libraries = [head.before[0].rstrip(), *libraries] if head.before[0] and reads else libraries
    inputs = [opened(subject, name, reader) for name, reader in readers.items()]
    inputs += [head.inputs] if reads else [numbers(subject)]
    outputs = [f"tokens = model.generate(**inputs, {FEW}, do_sample=False)", "print(tokens)"]
    if not head.generates:
        outputs = ["with torch.no_grad():", "    outputs = model(**inputs)", "print(outputs[0].shape)"]
    lines = [
        *libraries,
        f"from transformers import {', '.join(sorted([subject.auto_class, *readers.values()]))}",
        "",
        f'repo = "{subject.repo}"',
        f"model = {subject.auto_class}.from_pretrained(repo{trust(subject)})",
        *inputs,
        *outputs[:-1],
        head.answer if reads else outputs[-1],
    ]
    return "\n".join(lines)


# What makes inputs of what a model reads, by what the programs call it.
READERS = {
    "tokens": {"tokenizer": "AutoTokenizer"},
    **dict.fromkeys(("patches", "feature_map"), {"processor": "AutoImageProcessor"}),
    "spectrogram": {"extractor": "AutoFeatureExtractor", "tokenizer": "AutoTokenizer"},
    "both": {"processor": "AutoProcessor"},
}
# Those that look at the model's config as well.
CURIOUS = ("AutoTokenizer", "AutoProcessor")


def opened(subject: Subject, name: str, reader: str) -> str:
    """The line that opens a processor."""
    return f"{name} = {reader}.from_pretrained(repo{trust(subject) if reader in CURIOUS else ''})"


def numbers(subject: Subject) -> str:
    """Inputs for a model that comes without a processor."""
    return NUMBERS.get(subject.frontend, lambda subject: subject.head.numbers)(subject)


def pixels(subject: Subject) -> str:
    """A black image."""
    return f'inputs = {{"pixel_values": {blank(subject.config.get("encoder", subject.config))}}}'


def pairs(subject: Subject) -> str:
    """A text that ends, and a black image."""
    end = subject.config["text_config"]["eos_token_id"]
    ids = f'inputs = {{"input_ids": torch.tensor([[1, 2, {end}]])}}'
    return f'{ids}\ninputs["pixel_values"] = {blank(subject.config["vision_config"])}'


def blank(config: dict[str, Any]) -> str:
    """An image of the size that a config of patches says; detectors take any."""
    size = config.get("image_size", 64)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return f"torch.zeros(1, {config['num_channels']}, {height}, {width})"


def frames(subject: Subject) -> str:
    """A spectrogram of nothing, for stock Whisper as long as it wants it."""
    config = subject.config.get("encoder", subject.config)
    bins = config.get("num_mel_bins") or config["input_feat_per_channel"]
    size = f"1, 16, {bins}"
    if config.get("frame_layout") == "bins_first" or subject.model_type == "whisper":
        size = f"1, {bins}, {2 * config['max_source_positions'] if subject.model_type == 'whisper' else 16}"
    given = f'inputs = {{"input_features": torch.zeros({size})}}'
    words = '\ninputs["decoder_input_ids"] = torch.tensor([[1, 2, 3]])'
    reads_words = subject.auto_class == "AutoModel" and subject.config.get("is_encoder_decoder")
    return given + words if reads_words else given


NUMBERS = {"patches": pixels, "feature_map": pixels, "spectrogram": frames, "both": pairs}


def trust(subject: Subject) -> str:
    """What has to be said for code to run that comes with the weights."""
    return "" if subject.native else ", trust_remote_code=True"
