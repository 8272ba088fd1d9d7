"""How is a published model used? The Python that stands in its card; tests/test_cards.py runs it as it stands there."""

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
    name, reader = ("processor", "AutoImageProcessor") if subject.reads_images else ("tokenizer", "AutoTokenizer")
    classes = sorted([subject.auto_class, *([reader] if reads else [])])
    pillow = ["from PIL import Image"] if subject.reads_images and reads else []
    computed = (
        ["tokens = model.generate(**inputs, max_new_tokens=20, do_sample=False)"]
        if head.generates
        else ["with torch.no_grad():", "    outputs = model(**inputs)"]
    )
    plain = "print(tokens)" if head.generates else "print(outputs[0].shape)"
    return "\n".join(
        (
            *([] if head.generates and reads else ["import torch"]),
            *pillow,
            f"from transformers import {', '.join(classes)}",
            "",
            f'repo = "{subject.repo}"',
            *([f"{name} = {reader}.from_pretrained(repo)"] if reads else []),
            f"model = {subject.auto_class}.from_pretrained(repo{trust(subject)})",
            head.inputs if reads else numbers(subject),
            *computed,
            head.answer if reads else plain,
        )
    )


def numbers(subject: Subject) -> str:
    """Inputs for a model that comes without a processor."""
    if not subject.reads_images:
        return subject.head.numbers
    size = subject.config["image_size"]
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return f'inputs = {{"pixel_values": torch.zeros(1, {subject.config["num_channels"]}, {height}, {width})}}'


def trust(subject: Subject) -> str:
    """What has to be said for code to run that comes with the weights."""
    return "" if subject.native else ", trust_remote_code=True"
