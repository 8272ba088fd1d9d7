"""How is a published model used? The Python that stands in its card; tests/test_cards.py runs it as it stands there."""

from typing import Any

from qkv.scripts.publishing.card_subject import Subject


def snippets(subject: Subject) -> list[str]:
    """Programs that use the model: through a pipeline where its task has one, and through its Auto class."""
    head = subject.head
    piped = [pipeline(subject)] if head.pipeline and subject.place.get("processor", True) else []
    return [*piped, by_hand(subject)]


def pipeline(subject: Subject) -> str:
    """The program with fewest lines."""
    head = subject.head
    return "\n".join(
        (
            "from transformers import pipeline",
            "",
            f'predict = pipeline("{head.tag}", model="{subject.repo}"{trust(subject)})',
            f"print(predict({head.pipeline}))",
        )
    )


def by_hand(subject: Subject) -> str:
    """The program that shows the model's own outputs; the processor is left out where the folder has none."""
    head, reads = subject.head, subject.place.get("processor", True)
    sees = subject.reads_images or head.reads_both
    reader = "AutoImageProcessor" if subject.reads_images else "AutoTokenizer"
    reader = "AutoProcessor" if head.reads_both else reader
    libraries = [] if head.generates and reads else ["import torch"]
    libraries += ["from PIL import Image"] if sees and reads else []
    classes = sorted([subject.auto_class, reader] if reads else [subject.auto_class])
    inputs = [opened(subject, reader), head.inputs] if reads else [numbers(subject)]
    outputs = ["tokens = model.generate(**inputs, max_new_tokens=20, do_sample=False)", "print(tokens)"]
    if not head.generates:
        outputs = ["with torch.no_grad():", "    outputs = model(**inputs)", "print(outputs[0].shape)"]
    lines = [
        *libraries,
        f"from transformers import {', '.join(classes)}",
        "",
        f'repo = "{subject.repo}"',
        f"model = {subject.auto_class}.from_pretrained(repo{trust(subject)})",
        *inputs,
        *outputs[:-1],
        head.answer if reads else outputs[-1],
    ]
    return "\n".join(lines)


def opened(subject: Subject, reader: str) -> str:
    """The line that opens what makes inputs; a tokenizer looks at the model's config as well."""
    if subject.reads_images:
        return f"processor = {reader}.from_pretrained(repo)"
    if subject.head.reads_both:
        return f"processor = {reader}.from_pretrained(repo{trust(subject)})"
    return f"tokenizer = {reader}.from_pretrained(repo{trust(subject)})"


def numbers(subject: Subject) -> str:
    """Inputs for a model that comes without a processor."""
    if subject.head.reads_both:
        end = subject.config["text_config"]["eos_token_id"]
        ids = f'inputs = {{"input_ids": torch.tensor([[1, 2, {end}]])}}'
        return f'{ids}\ninputs["pixel_values"] = {blank(subject.config["vision_config"])}'
    return f'inputs = {{"pixel_values": {blank(subject.config)}}}' if subject.reads_images else subject.head.numbers


def blank(config: dict[str, Any]) -> str:
    """An image of the size that a config of patches says."""
    size = config["image_size"]
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return f"torch.zeros(1, {config['num_channels']}, {height}, {width})"


def trust(subject: Subject) -> str:
    """What has to be said for code to run that comes with the weights."""
    return "" if subject.native else ", trust_remote_code=True"
