"""Contrastive learning of images and captions with in-batch negatives, for a dual encoder.

Source: Radford et al. 2021, CLIP, https://arxiv.org/abs/2103.00020
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tokenizers import trainers
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoImageProcessor, AutoTokenizer, CLIPImageProcessorPil, CLIPProcessor, CLIPTokenizer

from qkv.scripts.data.examples import Batch, Record
from qkv.scripts.data.image_data import CaptionData
from qkv.scripts.data.pretrained import pretrained_folder
from qkv.scripts.data.tokenization import ALPHABET, config_fields, count_truncated, tokenize
from qkv.scripts.data.validation import check_image
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks.metrics import measure
from qkv.scripts.tasks.task import LONGEST, Answer, Task, first

CANDIDATES = 32  # captions to choose from in evaluation
OFFERED = 3  # captions to choose from on the card


class Contrastive(Task):
    """Match images and captions.

    Measured is how often an image's caption is found among 32 different ones: of those that occur in training, and of
    those that do not.
    """

    kind = "zero-shot-image-classification"
    in_batch_negatives = True
    reduces_answers = True

    def __init__(self, recipe: Recipe, data: CaptionData) -> None:
        init = recipe.model.init
        processor = pretrained_processor(init) if init else clip_processor(data.captions, data.side, data.vocab_size)
        self.captions, self.seen = data.captions, data.seen
        self.tokens = dict(processor.tokenizer(data.captions, padding=True, truncation=True, return_tensors="pt"))
        config = {"text_config": text_config(processor.tokenizer), "vision_config": {"image_size": data.side}}
        splits = {"train": data.train, **data.splits}
        super().__init__(data, splits, processor, config, truncated=truncated(processor, data.captions, splits))

    def collate(self, records: Sequence[Record], places: Sequence[int] | None) -> Batch:
        numbers, own = (torch.as_tensor([int(record[name]) for record in records]) for name in ("caption", "place"))
        processor = self.processor.image_processor
        if "levels" in records[0]:
            levels = torch.stack([record["levels"] for record in records])
            mean, deviation = (
                torch.tensor(values)[:, None, None] for values in (processor.image_mean, processor.image_std)
            )
            pixels = (levels.permute(0, 3, 1, 2).float() * processor.rescale_factor - mean) / deviation
        else:
            images = [check_image(record["image"]) for record in records]
            pixels = processor(images, return_tensors="pt")["pixel_values"]
        texts = {name: values[numbers] for name, values in self.tokens.items()}
        asked = {} if places is None else {"return_loss": torch.tensor(data=True)}
        return {"pixel_values": pixels, **texts, **asked, "_caption": numbers, "_place": own}

    def count(self, batch: Batch) -> int:
        return len(batch["pixel_values"])

    def score(self, outputs: Any, batch: Batch) -> dict[str, Tensor]:
        return {"loss": batch_loss(outputs)}

    def answer(self, model: Any, outputs: Any, batch: Batch) -> list[Answer]:
        """Return the caption nearest to each image among 32, and the right one."""
        count = len(self.tokens["input_ids"])
        pairs = zip(batch["_caption"].tolist(), batch["_place"].tolist(), strict=True)
        candidates = [[own, *negatives(own, count, place)] for own, place in pairs]
        wanted = sorted({number for numbers in candidates for number in numbers})
        texts = {name: values[wanted].to(model.device) for name, values in self.tokens.items()}
        near = outputs.image_embeds @ F.normalize(model.get_text_features(**texts).pooler_output, dim=-1).T
        column = {number: index for index, number in enumerate(wanted)}
        answers = []
        for scores, numbers in zip(near, candidates, strict=True):
            best = int(scores[[column[number] for number in numbers]].argmax())
            answers.append((numbers[best], numbers[0]))
        return answers

    def shown(self, answer: Answer) -> Record:
        """Return captions in place of their numbers."""
        return super().shown((self.captions[answer[0]], self.captions[answer[1]]))

    def reduce(self, sums: dict[str, float], answers: Sequence[Answer]) -> dict[str, float]:
        """Return the loss of a pair, and the accuracy for captions that occur in training and others."""
        metrics = super().reduce(sums, answers)
        for name, wanted in {"seen": True, "unseen": False}.items():
            chosen = [answer for answer in answers if (answer[1] < self.seen) == wanted]
            if chosen:
                predictions, references = zip(*chosen, strict=True)
                metrics[f"retrieval_{name}"] = measure(["accuracy"], predictions, references)["accuracy"]
        return metrics

    def sample(self) -> dict[str, Any]:
        record, most = first(self.splits), LONGEST // OFFERED
        if not record:
            return {}
        captions = [self.captions[record["caption"]], *self.captions]
        return {"prompt": [caption[:most] for caption in dict.fromkeys(captions)][:OFFERED]}


def clip_processor(captions: Sequence[str], side: int, vocab_size: int) -> CLIPProcessor:
    """Return CLIP's processor with byte pairs trained on these captions, always the same."""
    untrained = CLIPTokenizer().backend_tokenizer
    # Else the trainer numbers the ends of words in an order that differs from process to process.
    first = [CLIPTokenizer().bos_token, CLIPTokenizer().eos_token, *(f"{letter}</w>" for letter in ALPHABET)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=first, initial_alphabet=ALPHABET, end_of_word_suffix="</w>",
        show_progress=False,
    )  # fmt: skip
    untrained.train_from_iterator(captions, trainer)
    model = json.loads(untrained.to_str())["model"]
    merges: Any = [(one, other) for one, other in model["merges"]]
    tokenizer = CLIPTokenizer(model["vocab"], merges, model_max_length=77)
    size = {"height": side, "width": side}
    return CLIPProcessor(CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size=size), tokenizer)


def pretrained_processor(init: str) -> CLIPProcessor:
    """Return the processor of a pretrained dual encoder, which decides tokens and image size."""
    folder = pretrained_folder(init)
    images = AutoImageProcessor.from_pretrained(folder, backend="pil")
    return CLIPProcessor(images, AutoTokenizer.from_pretrained(folder))


def truncated(processor: CLIPProcessor, captions: Sequence[str], splits: Mapping[str, Any]) -> dict[str, Any]:
    """Count the captions, one of each image, that were truncated to the fixed length of CLIP's tokenizer."""
    whole = [len(row) for row in tokenize(processor.tokenizer, captions)]
    numbers = {name: getattr(split, "columns", split)["caption"] for name, split in splits.items() if split is not None}
    lengths = {name: [whole[int(number)] for number in own] for name, own in numbers.items()}
    return count_truncated(lengths, processor.tokenizer.model_max_length, "")


def text_config(tokenizer: Any) -> dict[str, Any]:
    """Return the fields of the text encoder's config that follow from its tokenizer."""
    return config_fields(tokenizer, max_position_embeddings=tokenizer.model_max_length)


def batch_loss(outputs: Any) -> Tensor:
    """Sum the loss of the pairs of this batch, with negatives of this process alone."""
    labels = torch.arange(len(outputs.logits_per_image), device=outputs.logits_per_image.device)
    sides = (outputs.logits_per_image, outputs.logits_per_text)
    return sum((F.cross_entropy(side.float(), labels, reduction="sum") for side in sides), labels.new_zeros(())) / 2


def negatives(own: int, count: int, place: int) -> list[int]:
    """Draw the captions that compete with the right one, anew for each place."""
    rest = [number for number in range(count) if number != own]
    return [int(number) for number in np.random.default_rng(place).permutation(rest)[: CANDIDATES - 1]]
