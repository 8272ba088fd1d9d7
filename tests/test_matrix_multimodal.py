"""The properties of `test_matrix.py` for models that hear, match images with texts, and find objects.

Words come from the axes here too. A batch has a row of full length and a shorter one, padded with noise.
"""

import copy
import itertools
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple, get_args

import pytest
import torch
import transformers
from test_matrix import (
    BACKENDS,
    ORDERS,
    PATTERNS,
    POSITIONS,
    SIZES,
    TEXT,
    Case,
    close,
    fitting,
    gradients,
    same_bits,
    same_gradients,
    settings,
    tokens,
    weigh,
)
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel

from comparison import differentiable_flex, exact
from qkv.configuration import (
    QkvAudioEncoderConfig,
    QkvDetectionConfig,
    QkvDualEncoderConfig,
    QkvSpeechEncoderDecoderConfig,
)
from qkv.configuration.axes import ImagePositionName, PatternName
from qkv.modeling import (
    QkvAudioEncoderForCTC,
    QkvDetectionForObjectDetection,
    QkvDualEncoderModel,
    QkvSpeechEncoderDecoderForSpeechSeq2Seq,
)
from sampling import sampled
from tiny import jitter

END, BINS, FRAMES, SHORT = 1, 5, 29, 18
# Sound has no rows and columns of tokens.
UNGRIDDED = tuple(word for word in POSITIONS if word != "grid")
LINEAR = ("full", "sliding", "block_sparse")
SOUND = {"num_mel_bins": BINS, "conv_channels": 6}
WRITTEN, KEPT = 7, 5
HEARD = ("input_features", "attention_mask")
Batch = dict[str, Any]


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def marks(size: int, short: int) -> Tensor:
    return (torch.arange(size) < torch.tensor([[size], [short]])).long()


def sound() -> Batch:
    return {"input_features": noise(2, FRAMES, BINS), "attention_mask": marks(FRAMES, SHORT)}


def heard(labels: Tensor) -> Batch:
    return {**sound(), "labels": labels}


def texts() -> Batch:
    mask = marks(WRITTEN, KEPT)
    return {"input_ids": tokens(length=WRITTEN).scatter(1, mask.sum(1, keepdim=True) - 1, END), "attention_mask": mask}


def scenes() -> Batch:
    """Images of 3 x 4 places and of 2 x 3."""
    mask = torch.ones(2, 6, 8, dtype=torch.long)
    mask[1, 4:], mask[1, :, 6:] = 0, 0
    boxes = torch.tensor([[0.3, 0.4, 0.2, 0.5]], dtype=torch.float64)
    objects = [{"class_labels": torch.tensor([label]), "boxes": boxes + label / 10} for label in range(2)]
    return {"pixel_values": noise(2, 3, 6, 8), "pixel_mask": mask, "labels": objects}


class Family(NamedTuple):
    """A model with its inputs, the positions it may have, and the outputs that belong to each row."""

    model: Any
    config: Callable[..., Any]
    batch: Callable[[], Batch]
    auto_class: str
    outputs: tuple[str, ...] = ("logits",)
    positions: tuple[str, ...] = POSITIONS
    stacks: tuple[str, ...] = ("encoder", "decoder")
    patterns: tuple[str, ...] = PATTERNS


def labelling(position: str, **fields: Any) -> QkvAudioEncoderConfig:
    return QkvAudioEncoderConfig(**TEXT, **SOUND, position=position, **fields)


def dictation(position: str, **fields: Any) -> QkvSpeechEncoderDecoderConfig:
    ids = {"eos_token_id": END, "decoder_start_token_id": 0}
    return QkvSpeechEncoderDecoderConfig(**TEXT, **ids, encoder=SOUND, position=position, **fields)


def matching(position: str, **fields: Any) -> QkvDualEncoderConfig:
    grid = {name: SIZES[name] for name in ("text_length", "grid_columns")}  # an image's is that of its patches
    text = {**TEXT, **grid, "eos_token_id": END, "bos_token_id": None}
    image = {"image_size": [6, 4], "patch_size": 2}
    parts = {"text_config": text, "vision_config": image, "projection_dim": 5}
    return QkvDualEncoderConfig(**parts, position=position, **fields)


def finding(position: str, **fields: Any) -> QkvDetectionConfig:
    sizes = {"backbone_config": None, "patch_size": 2, "num_queries": 5, "num_labels": 2}
    return QkvDetectionConfig(**sizes, encoder={"position": position}, **fields)


FAMILIES = {
    "labels": Family(
        QkvAudioEncoderForCTC,
        labelling,
        lambda: heard(torch.tensor([[7, 7, 9], [5, 8, -100]])),
        "AutoModelForCTC",
        positions=UNGRIDDED,
        stacks=("",),
        patterns=LINEAR,
    ),
    "dictation": Family(
        QkvSpeechEncoderDecoderForSpeechSeq2Seq,
        dictation,
        lambda: heard(tokens(length=WRITTEN).masked_fill(marks(WRITTEN, KEPT) == 0, -100)),
        "AutoModelForSpeechSeq2Seq",
        positions=UNGRIDDED,
        patterns=LINEAR,
    ),
    "pairs": Family(
        QkvDualEncoderModel,
        matching,
        lambda: {**texts(), "pixel_values": noise(2, 3, 6, 4), "return_loss": torch.tensor(True)},
        "AutoModelForZeroShotImageClassification",
        ("text_embeds", "image_embeds"),
        stacks=("text_model", "vision_model"),
    ),
    "objects": Family(
        QkvDetectionForObjectDetection,
        finding,
        scenes,
        "AutoModelForObjectDetection",
        ("logits", "pred_boxes"),
        get_args(ImagePositionName),
    ),
}


def every() -> Iterator[Case]:
    for name, family in FAMILIES.items():
        yield from itertools.starmap(Case, itertools.product([name], family.positions, family.patterns, ORDERS))


def each(start: int) -> pytest.MarkDecorator:
    """Every 203rd case, and for each test other ones."""
    return pytest.mark.parametrize("case", sampled(every(), 203, start), ids=str)


def build(case: Case) -> PreTrainedModel:
    family, words = FAMILIES[case.family], list(get_args(PatternName))
    sizes = fitting(family.model.config_class, SIZES) | {"pattern": case.pattern, "norm_first": ORDERS[case.order]}
    if case.pattern == "mixed":
        sizes |= {"pattern": words, "num_hidden_layers": len(words)}
    torch.manual_seed(0)
    return jitter(family.model(family.config(position=case.position, **sizes))).double().eval()


@cache
def model_of(case: Case) -> PreTrainedModel:
    return build(case)


def batch_of(case: Case) -> Batch:
    return FAMILIES[case.family].batch()


def stacks(case: Case, model: PreTrainedModel) -> list[Any]:
    return [getattr(model.base_model, name) if name else model.base_model for name in FAMILIES[case.family].stacks]


def run(model: PreTrainedModel, batch: Batch) -> Any:
    with exact():
        return model(**batch)


def read(case: Case, model: PreTrainedModel, batch: Batch) -> list[Tensor]:
    """Return the outputs of each row."""
    outputs = run(model, batch)
    return [outputs[name] for name in FAMILIES[case.family].outputs]


def trimmed(batch: Batch, row: int) -> Batch:
    """A row of a batch without its padding."""
    found = {name: value[row : row + 1] for name, value in batch.items() if name != "return_loss"}
    if "pixel_mask" in found:
        mask = found.pop("pixel_mask")[0]
        found["pixel_values"] = found["pixel_values"][:, :, : int(mask[:, 0].sum()), : int(mask[0].sum())]
    elif isinstance(batch.get("labels"), Tensor):
        found["labels"] = found["labels"][found["labels"] != -100][None]
    if "attention_mask" in found:
        length, name = int(found.pop("attention_mask").sum()), next(iter(found))
        found[name] = found[name][:, :length]
    return found


# Object queries start as zeros, so attention among them changes nothing in the first layer.
ALIKE = re.compile(r"model\.decoder\.layers\.0\.self_attn(\.[qkv]_proj\.|_residual\.norm\.weight)")


@each(0)
def test_every_parameter_learns(case: Case) -> None:
    model = copy.deepcopy(model_of(case)).train()
    run(model, batch_of(case)).loss.backward()
    for name, gradient in gradients(model).items():
        assert gradient is not None and gradient.isfinite().all(), name
        # A key's bias moves all scores of a query equally, which a softmax does not see.
        silent = name.endswith("k_proj.bias") or (case.family == "objects" and ALIKE.match(name))
        assert silent or gradient.abs().max() > 1e-9, name


@each(184)
def test_a_row_is_read_alone_as_in_a_batch_whatever_it_is_padded_with(case: Case) -> None:
    model, batch = copy.deepcopy(model_of(case)), batch_of(case)
    together = read(case, model, batch)
    for row in range(2):
        for both, own in zip(together, read(case, model, trimmed(batch, row)), strict=True):
            assert close(both[row][: len(own[0])], own[0])
    sum(weigh(output) for output in together).backward()
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients(model).values())


@each(98)
@torch.no_grad()
def test_sound_and_places_are_read_both_ways_and_texts_of_pairs_one_way(case: Case) -> None:
    model, batch = model_of(case), trimmed(batch_of(case), 0)
    batch.pop("labels", None)
    name = next(iter(batch))
    changed = batch[name].clone()
    if name == "input_ids":
        changed[:, 2] = 2 + (changed[:, 2] - 1) % 20
    else:
        changed[..., -1, -1] += 1
    with exact():
        before, after = (states(case, model, name, given) for given in (batch[name], changed))
    seen = (before - after).abs().amax(-1)[0]
    assert (seen[:2] == 0).all() and seen[2] > 1e-9 if name == "input_ids" else (seen[-3:] > 1e-9).all()


def states(case: Case, model: PreTrainedModel, name: str, given: Tensor) -> Tensor:
    """Return the states of the first stack."""
    first = stacks(case, model)[0]
    if case.family == "objects":
        return first(*first.look(given, None)).last_hidden_state
    return first(**{name: given}).last_hidden_state


@each(190)
def test_backends_agree(case: Case) -> None:
    """Values and gradients of eager, sdpa and flex, on a padded batch."""
    model, batch = copy.deepcopy(model_of(case)), batch_of(case)
    outputs, slopes = {}, {}
    with differentiable_flex():
        for backend in BACKENDS:
            model.set_attn_implementation(backend)
            assert {stack.config._attn_implementation for stack in stacks(case, model)} == {backend}
            model.zero_grad()
            loss = run(model, batch).loss
            loss.backward()
            outputs[backend], slopes[backend] = loss, copy.deepcopy(gradients(model))
    for backend in BACKENDS[1:]:
        assert close(outputs[backend], outputs["eager"])
        assert all(close(slopes[backend][name], value) for name, value in slopes["eager"].items())


@each(58)
def test_checkpointing_changes_nothing(case: Case) -> None:
    plain, batch = copy.deepcopy(model_of(case)).train(), batch_of(case)
    expected = run(plain, batch).loss
    expected.backward()
    for reentrant in (True, False):
        model, runs = copy.deepcopy(model_of(case)).train(), []
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
        for stack in stacks(case, model):
            stack.layers[0].self_attn.register_forward_pre_hook(lambda *_, runs=runs: runs.append(1))
        loss = run(model, batch).loss
        loss.backward()
        assert close(loss, expected) and same_gradients(model, plain)
        assert len(runs) == 2 * len(stacks(case, model))


@pytest.mark.parametrize("case", sampled((case for case in every() if case.family == "dictation"), 97, 40), ids=str)
@torch.no_grad()
def test_cached_is_full(case: Case) -> None:
    """Tokens in pieces, each reading what the cache holds of those before, and memory from the cache alone."""
    model, batch = model_of(case), batch_of(case)
    batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(batch.pop("labels"))
    config = model.config.decoder
    past = EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))
    with exact():
        whole = model(**batch).logits
        memory = model.get_encoder()(**{name: batch[name] for name in HEARD}).last_hidden_state
        parts = []
        for first, last in itertools.pairwise((0, 4, 5, WRITTEN)):
            given = {"encoder_outputs": (memory,), "attention_mask": batch["attention_mask"]}
            chunk = batch["decoder_input_ids"][:, first:last]
            parts.append(model(**given, decoder_input_ids=chunk, past_key_values=past, use_cache=True).logits)
            memory = torch.full_like(memory, torch.nan)
    assert close(torch.cat(parts, 1), whole)


@each(127)
@torch.no_grad()
def test_saved_is_loaded(case: Case, tmp_path: Any) -> None:
    model = model_of(case)
    model.save_pretrained(tmp_path, max_shard_size="2KB")
    loaded = getattr(transformers, FAMILIES[case.family].auto_class).from_pretrained(tmp_path, dtype=torch.float64)
    assert type(loaded) is type(model) and same_bits(loaded, model)
    assert settings(loaded.config.to_dict()) == settings(model.config.to_dict())
    # Weights mapped from a file may lie so in memory that another kernel suits them: they are moved.
    both = (read(case, each, batch_of(case)) for each in (model, copy.deepcopy(loaded)))
    assert all(itertools.starmap(torch.equal, zip(*both, strict=True)))


# Of each family every position, and beside it the next word of every other axis.
TURNS = [
    Case(name, position, pattern, order)
    for name, family in FAMILIES.items()
    for position, pattern, order in zip(
        family.positions, itertools.cycle(PATTERNS), itertools.cycle(ORDERS), strict=False
    )
]
every_turn = pytest.mark.parametrize("case", TURNS, ids=str)


def asked(case: Case) -> Batch:
    """Return inputs for a graph: without labels, whose checks and matching are Python's."""
    batch = batch_of(case)
    labels = batch.pop("labels", None)
    if case.family == "dictation":
        batch["decoder_input_ids"] = labels.masked_fill(labels == -100, 0)
    return {name: value for name, value in batch.items() if name != "return_loss"}


@pytest.mark.slow
@every_turn
@torch.no_grad()
def test_one_graph(case: Case) -> None:
    torch._dynamo.reset()
    model, batch = model_of(case), asked(case)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert all(itertools.starmap(close, zip(read(case, compiled, batch), read(case, model, batch), strict=True)))


@pytest.mark.slow
@every_turn
@torch.no_grad()
def test_export(case: Case) -> None:
    model, batch = build(case), asked(case)
    constant = {"use_cache": False} if case.family == "dictation" else {}
    with exact():
        program = torch.export.export(model, (), {**batch, **constant}).module()
        found, expected = program(**batch, **constant), model(**batch, **constant)
    assert all(close(found[name], expected[name]) for name in FAMILIES[case.family].outputs)
