"""Which text is about which picture? Pairs of both, each of which has to find the other among all of a step."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from tokenizers import trainers
from torch import Tensor
from torch.nn import functional as F
from transformers import CLIPImageProcessorPil, CLIPProcessor, CLIPTokenizer

from qkv.scripts.data.tokenization import ALPHABET
from qkv.scripts.example_data.shapes import SIDE, caption, gallery, pairs
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.metrics import measure
from qkv.scripts.tasks.task import Answer, Batch, Columns, Example, Record, Task, stack

TESTED = 400  # pictures of pairs that are trained on, and as many of others
CHOICE = 32  # captions to choose from
HERE = "https://pillow.readthedocs.io/en/stable/reference/ImageDraw.html"


def captions(recipe: Recipe) -> Task:
    """Shapes and what they are called: `text.made` pictures of `text.symbols` shapes in eight colours.

    Measured is how often the caption is found among 32 different ones: of colours and shapes that were seen together,
    and of some that never were. A `holdout` is taken from the training pictures.
    """
    seen, unseen = pairs(recipe.text.symbols)
    texts = [caption(pair) for pair in (*seen, *unseen)]
    processor = processor_for(texts)
    rows = processor.tokenizer(texts, padding=True, return_tensors="pt")
    pictures = {"train": gallery(seen, recipe.text.made, 0), "seen": gallery(seen, TESTED, 1)}
    levels, numbers = gallery(unseen, TESTED, 2)
    pictures["unseen"] = (levels, [len(seen) + number for number in numbers])
    train = columns([pictures["train"]])
    held = int(recipe.text.made * recipe.holdout)
    splits = {"validation": part(train, slice(0, held))} if held else {}
    judge = Judge(rows, len(seen))
    return Task(
        name="shapes-captions",
        title=f"{recipe.text.symbols} shapes in eight colours, and captions",
        kind="zero-shot-image-classification",
        source=HERE,
        train=part(train, slice(held, None)),
        splits={**splits, "test": columns([pictures["seen"], pictures["unseen"]])},
        labels=[],
        processor=processor,
        count=lambda batch: len(batch["pixel_values"]),
        score=lambda outputs, batch: {"loss": own_loss(outputs)},
        answer=judge.answer,
        measure=judge.measured,
        collate=partial(together, rows=dict(rows), processor=processor.image_processor),
        config={"text_config": text_fields(processor.tokenizer), "vision_config": {"image_size": SIDE}},
        example=lambda model: recognised(model, pictures["seen"][0][0], texts, processor),
        contested=True,
    )


def processor_for(texts: Sequence[str]) -> CLIPProcessor:
    """CLIP's own, with pairs of bytes that are found in these texts, the same ones every time."""
    untrained = CLIPTokenizer().backend_tokenizer
    # The trainer numbers what ends words as it meets it, and that in an order that differs from process to process.
    first = [CLIPTokenizer().bos_token, CLIPTokenizer().eos_token, *(f"{letter}</w>" for letter in ALPHABET)]
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=first, initial_alphabet=ALPHABET, end_of_word_suffix="</w>", show_progress=False
    )
    untrained.train_from_iterator(texts, trainer)
    model = json.loads(untrained.to_str())["model"]
    merges: Any = [(one, other) for one, other in model["merges"]]
    tokenizer = CLIPTokenizer(model["vocab"], merges, model_max_length=77)
    size = {"height": SIDE, "width": SIDE}
    return CLIPProcessor(CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=size), tokenizer)


def text_fields(tokenizer: Any) -> dict[str, Any]:
    """What the config of the text half says of its tokens."""
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    ids = {name: getattr(tokenizer, name) for name in names}
    return {"vocab_size": len(tokenizer), "max_position_embeddings": tokenizer.model_max_length, **ids}


def columns(parts: Sequence[tuple[Any, list[int]]]) -> Columns:
    """Pictures as they are, the numbers of their captions, and their own."""
    levels = torch.from_numpy(np.concatenate([levels for levels, _ in parts]))
    numbers = torch.tensor([number for _, numbers in parts for number in numbers])
    return Columns({"levels": levels, "caption": numbers, "place": torch.arange(len(numbers))})


def part(examples: Columns, which: slice) -> Columns:
    """Some of the examples."""
    return Columns({name: column[which] for name, column in examples.columns.items()})


def together(records: Sequence[Record], places: Sequence[int] | None, rows: Any, processor: Any) -> Batch:
    """Pictures, their captions, and in training that they are to be compared; as the processor makes them."""
    batch = stack(records)
    mean, deviation = (torch.tensor(values)[:, None, None] for values in (processor.image_mean, processor.image_std))
    pixels = (batch["levels"].permute(0, 3, 1, 2).float() * processor.rescale_factor - mean) / deviation
    texts = {name: values[batch["caption"]] for name, values in rows.items()}
    asked = {} if places is None else {"return_loss": torch.tensor(data=True)}
    return {"pixel_values": pixels, **texts, **asked, "_caption": batch["caption"], "_place": batch["place"]}


def own_loss(outputs: Any) -> Tensor:
    """The loss of the pairs of this batch among themselves, whatever other processes look at."""
    labels = torch.arange(len(outputs.logits_per_image), device=outputs.logits_per_image.device)
    sides = (outputs.logits_per_image, outputs.logits_per_text)
    return sum((F.cross_entropy(side.float(), labels, reduction="sum") for side in sides), labels.new_zeros(())) / 2


def others(own: int, count: int, place: int) -> list[int]:
    """The captions among which that of a picture has to be found, other ones for each place."""
    rest = [number for number in range(count) if number != own]
    return [int(number) for number in np.random.default_rng(place).permutation(rest)[: CHOICE - 1]]


@dataclass(frozen=True)
class Judge:
    """Lets a model choose among captions, of which `rows` are the tokens and the first `seen` were trained on."""

    rows: Any
    seen: int

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """The caption that is nearest to each picture among its own and 31 others, and its own."""
        rows = {name: values.to(model.device) for name, values in self.rows.items()}
        texts = F.normalize(model.get_text_features(**rows).pooler_output, dim=-1)
        near = outputs.image_embeds @ texts.T
        found = []
        for scores, own, place in zip(near, batch["_caption"].tolist(), batch["_place"].tolist(), strict=True):
            among = [own, *others(own, len(scores), place)]
            found.append((among[int(scores[among].argmax())], own))
        return found

    def measured(self, sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
        """The loss of a pair, and how often pairs that were seen and others are found."""
        found = {"loss": sums["loss"] / sums["targets"]}
        for name, wanted in {"seen": True, "unseen": False}.items():
            chosen = [answer for answer in answers if (answer[1] < self.seen) == wanted]
            if chosen:
                predictions, references = zip(*chosen, strict=True)
                found[f"retrieval_{name}"] = measure(["accuracy"], predictions, references)["accuracy"]
        return found


def recognised(model: Any, levels: NDArray[np.uint8], texts: list[str], processor: CLIPProcessor) -> Example:
    """The first picture of the test, and the caption that the model gives it."""
    image = Image.fromarray(levels)
    inputs = processor(text=texts, images=image, padding=True, return_tensors="pt").to(model.device)
    with torch.no_grad():
        best = int(model(**inputs).logits_per_image.argmax())
    return Example(image, {"label": texts[best]}, {"candidate_labels": texts, "hypothesis_template": "{}"})
