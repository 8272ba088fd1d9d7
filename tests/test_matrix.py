"""Every property for every position × pattern or kernel × norm order × family; nothing here is picked by hand.

The words come from the axes, so a new one is tested by existing; `mixed` gives each layer another pattern. Models are
tiny, jittered, in double precision and shared by all tests: whoever changes one copies it first. A batch has a row of
full length and a shorter one, padded with noise.
"""

import copy
import itertools
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, get_args

import pytest
import torch
import torch._inductor.codegen.cpp_utils  # its tables are keyed by torch.float32, which `exact` replaces
import transformers
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel, StaticCache

import qkv.modeling
from comparison import EXACT, differentiable_flex, exact
from qkv.configuration.axes import (
    BIAS_POSITIONS,
    RECURRENT_KERNELS,
    ROTARY_POSITIONS,
    STATE_KERNELS,
    FeedForwardName,
    GridPatternName,
    ImagePositionName,
    NormName,
    PatternName,
    PositionName,
)
from sampling import sampled
from tiny import jitter

POSITIONS = get_args(PositionName)
# A kernel that keeps a state has no other pattern but the full one.
PATTERNS = (*get_args(PatternName), "mixed", *STATE_KERNELS)
ORDERS = {"pre-norm": True, "post-norm": False}
BACKENDS = ("eager", "sdpa", "flex_attention")
VOCABULARY, LENGTH, SOURCE, END = 23, 11, 7, 1

SIZES = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 4,
    "intermediate_size": 14,
    "sliding_window": 4,
    "block_size": 2,
    "fixed_columns": 1,
    "num_random_blocks": 1,
    "text_length": 1,
    "grid_columns": 4,
    "grid_kernel": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
}
TEXT = {"vocab_size": VOCABULARY, "max_position_embeddings": 32, "pad_token_id": 0}
TARGET = {**TEXT, "eos_token_id": END, "decoder_start_token_id": 0}
GRID = {name: SIZES[name] for name in ("text_length", "grid_columns")}  # an image's is that of its patches
SOUND = {"num_mel_bins": 5, "conv_channels": 6}
# Sound has no rows and columns of tokens, images of any size none of one length.
UNGRIDDED = tuple(word for word in POSITIONS if word != "grid")
LINEAR = tuple(word for word in PATTERNS if word not in get_args(GridPatternName))
RIGHT, BOTH = ("right",), ("right", "left")
Batch = dict[str, Any]


class Family(NamedTuple):
    """A model by its class, the Auto class that loads it, what its config says beside sizes, and which words it takes.

    `stacks` are those of the base model, "" where it is one itself; `sources` and `targets` the sides on which its rows
    may be padded; `placed` the part of the config that has the position.
    """

    model: str
    auto_class: str
    fields: dict[str, Any]
    positions: tuple[str, ...] = POSITIONS
    patterns: tuple[str, ...] = PATTERNS
    stacks: tuple[str, ...] = ("",)
    outputs: tuple[str, ...] = ("logits",)
    sources: tuple[str, ...] = RIGHT
    targets: tuple[str, ...] = RIGHT
    placed: str = ""

    @property
    def model_class(self) -> Any:
        return getattr(qkv.modeling, self.model)


PARTS = ("encoder", "decoder")
FAMILIES = {
    "encoder": Family("QkvEncoderForMaskedLM", "AutoModelForMaskedLM", TEXT, sources=BOTH),
    "image-encoder": Family(
        "QkvImageEncoderModel",
        "AutoModel",
        {"image_size": [6, 4], "patch_size": 2, "pooling": "mean"},
        outputs=("last_hidden_state",),
    ),
    "decoder": Family("QkvDecoderForCausalLM", "AutoModelForCausalLM", TEXT, sources=BOTH),
    "encoder-decoder": Family(
        "QkvEncoderDecoderForConditionalGeneration",
        "AutoModelForSeq2SeqLM",
        TARGET,
        stacks=PARTS,
        sources=BOTH,
        targets=BOTH,
    ),
    "audio-encoder": Family("QkvAudioEncoderForCTC", "AutoModelForCTC", {**TEXT, **SOUND}, UNGRIDDED, LINEAR),
    "speech": Family(
        "QkvSpeechEncoderDecoderForSpeechSeq2Seq",
        "AutoModelForSpeechSeq2Seq",
        {**TARGET, "encoder": SOUND},
        UNGRIDDED,
        LINEAR,
        stacks=PARTS,
        targets=BOTH,
    ),
    "dual-encoder": Family(
        "QkvDualEncoderModel",
        "AutoModelForZeroShotImageClassification",
        {
            "text_config": {**TEXT, **GRID, "eos_token_id": END, "bos_token_id": None},
            "vision_config": {"image_size": [6, 4], "patch_size": 2},
            "projection_dim": 5,
        },
        stacks=("text_model", "vision_model"),
        outputs=("text_embeds", "image_embeds"),
    ),
    "detector": Family(
        "QkvDetectionForObjectDetection",
        "AutoModelForObjectDetection",
        {"backbone_config": None, "patch_size": 2, "num_queries": 5, "num_labels": 2},
        get_args(ImagePositionName),
        LINEAR,
        stacks=PARTS,
        outputs=("logits", "pred_boxes"),
        placed="encoder",
    ),
}
# Those that read tokens or patches: cheap enough for every other word beside the case.
SMALL = ("encoder", "image-encoder", "decoder", "encoder-decoder")


class Case(NamedTuple):
    family: str
    position: str
    pattern: str
    order: str

    def __str__(self) -> str:
        return "_".join(self)


def is_allowed(case: Case) -> bool:
    """Return whether a config takes these words: kernels that keep a state have no scores."""
    if case.pattern in RECURRENT_KERNELS and case.family != "decoder":
        return False
    return case.pattern not in STATE_KERNELS or case.position not in (*BIAS_POSITIONS, "xpos")


def product(*families: str, positions: tuple[str, ...] | None = None) -> Iterator[Case]:
    for name in families or FAMILIES:
        words = [word for word in FAMILIES[name].positions if positions is None or word in positions]
        cases = itertools.starmap(Case, itertools.product([name], words, FAMILIES[name].patterns, ORDERS))
        yield from filter(is_allowed, cases)


def every(*families: str, start: int = 0, **words: Any) -> pytest.MarkDecorator:
    """Every 37th case, and for each test that begins elsewhere other ones."""
    return pytest.mark.parametrize("case", sampled(product(*families, **words), 37, start), ids=str)


def in_turn(words: Any) -> list[tuple[Case, Any]]:
    """Every case with one of the words, and every word with every family and position."""
    return list(zip(product(), itertools.cycle(words), strict=False))


def fitting(config_class: Any) -> dict[str, Any]:
    """The sizes that a config has, or all of its parts: a grid is derived for images, and sound has none."""
    parts = config_class.sub_configs.values() or [config_class]
    return {name: value for name, value in SIZES.items() if all(name in part.known_fields() for part in parts)}


def build(case: Case, **fields: Any) -> PreTrainedModel:
    family = FAMILIES[case.family]
    config_class = family.model_class.config_class
    mixing = {"kernel": case.pattern} if case.pattern in STATE_KERNELS else {"pattern": case.pattern}
    given = {**fitting(config_class), **family.fields, **mixing, "norm_first": ORDERS[case.order]}
    if case.pattern == "mixed":
        words = [word for word in family.patterns if word in get_args(PatternName)]
        given |= {"pattern": words, "num_hidden_layers": len(words)}
    position = {"position": case.position}
    given |= {family.placed: position} if family.placed else position
    torch.manual_seed(0)
    return jitter(family.model_class(config_class(**{**given, **fields}))).double().eval()


@cache
def model_of(case: Case) -> PreTrainedModel:
    return build(case)


@cache
def shallow(case: Case) -> PreTrainedModel:
    """With one layer where all are alike: enough to compare backends, of which flex is slow here."""
    return build(case, **({} if case.pattern == "mixed" else {"num_hidden_layers": 1}))


def stacks(case: Case, model: PreTrainedModel) -> list[Any]:
    return [getattr(model.base_model, name) if name else model.base_model for name in FAMILIES[case.family].stacks]


def with_backend(model: PreTrainedModel, backend: str) -> PreTrainedModel:
    model = copy.deepcopy(model)
    model.set_attn_implementation(backend)
    return model


# Inputs -----------------------------------------------------------------------------------------------------------------


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def tokens(rows: int = 2, length: int = LENGTH, seed: int = 0) -> Tensor:
    return torch.randint(2, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def pad(ids: Tensor, short: int, side: str, prefix: str = "") -> dict[str, Tensor]:
    """Two rows of which the second is shorter, with random tokens for padding: nobody may read them."""
    length = ids.shape[1]
    padded, mask = tokens(2, length, seed=9), torch.ones(2, length, dtype=torch.long)
    padded[0] = ids[0]
    place = slice(0, length - short) if side == "right" else slice(short, length)
    padded[1, place], mask[1] = ids[1, : length - short], 0
    mask[1, place] = 1
    return {f"{prefix}input_ids": padded, f"{prefix}attention_mask": mask}


def labelled(batch: dict[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """With a label for every real token but the first, which a causal model would predict from padding."""
    ids, real = batch[f"{prefix}input_ids"], batch[f"{prefix}attention_mask"].bool()
    return {**batch, "labels": ids.where(real & real.roll(1, -1), -100)}


def text(sources: str, targets: str) -> Batch:
    return labelled(pad(tokens(), 4, sources))


def images(sources: str, targets: str) -> Batch:
    return {"pixel_values": noise(2, 3, 6, 4)}


def translation(sources: str, targets: str) -> Batch:
    target = labelled(pad(tokens(), 4, targets, "decoder_"), "decoder_")
    return {**pad(tokens(length=SOURCE, seed=1), 2, sources), **target}


def sound(sources: str, targets: str) -> Batch:
    mask = (torch.arange(29) < torch.tensor([[29], [18]])).long()
    return {
        "input_features": noise(2, 29, 5),
        "attention_mask": mask,
        "labels": torch.tensor([[7, 7, 9], [5, 8, -100]]),
    }


def speech(sources: str, targets: str) -> Batch:
    return {**sound(sources, targets), **labelled(pad(tokens(), 4, targets, "decoder_"), "decoder_")}


def pairs(sources: str, targets: str) -> Batch:
    """Texts that end, each with an image."""
    texts = pad(tokens(length=SOURCE), 2, sources)
    last = texts["attention_mask"].sum(1, keepdim=True) - 1
    texts["input_ids"] = texts["input_ids"].scatter(1, last, END)
    return {**texts, **images(sources, targets), "return_loss": torch.tensor(True)}


def scenes(sources: str, targets: str) -> Batch:
    """Images of 3 x 4 places and of 2 x 3, with an object in each."""
    mask = torch.ones(2, 6, 8, dtype=torch.long)
    mask[1, 4:], mask[1, :, 6:] = 0, 0
    boxes = torch.tensor([[0.3, 0.4, 0.2, 0.5]], dtype=torch.float64)
    objects = [{"class_labels": torch.tensor([label]), "boxes": boxes + label / 10} for label in range(2)]
    return {"pixel_values": noise(2, 3, 6, 8), "pixel_mask": mask, "labels": objects}


BATCHES = dict(zip(FAMILIES, (text, images, text, translation, sound, speech, pairs, scenes), strict=True))


def batch_of(case: Case, sources: str = "right", targets: str = "right") -> Batch:
    return BATCHES[case.family](sources, targets)


def unlabelled(batch: Batch) -> Batch:
    """Inputs without labels, whose checks and matching are Python's."""
    return {name: value for name, value in batch.items() if name not in ("labels", "return_loss")}


def inputs_of(case: Case) -> Batch:
    """Two rows of full length."""
    if case.family == "encoder-decoder":
        return {"input_ids": tokens(length=SOURCE, seed=1), "decoder_input_ids": tokens()}
    if case.family == "speech":
        return {"input_features": noise(2, 29, 5), "decoder_input_ids": tokens()}
    return {"pixel_values": noise(2, 3, 6, 4)} if case.family == "image-encoder" else {"input_ids": tokens()}


# What each mask says of.
MASKED = {
    "attention_mask": ("input_ids", "input_features", "labels"),
    "decoder_attention_mask": ("decoder_input_ids", "labels"),
}


def alone(batch: Batch, row: int) -> Batch:
    """A row of a batch without its padding."""
    own = {name: value[row : row + 1] for name, value in batch.items() if name != "return_loss"}
    if "pixel_mask" in own:
        mask = own.pop("pixel_mask")[0]
        own["pixel_values"] = own["pixel_values"][:, :, : int(mask[:, 0].sum()), : int(mask[0].sum())]
    for name, names in MASKED.items():
        real = own.pop(name)[0].bool() if name in own else torch.tensor([])
        for masked in names:
            if isinstance(own.get(masked), Tensor) and own[masked].shape[1] == len(real):
                own[masked] = own[masked][:, real]
    if "labels" in own and "input_features" in own and "decoder_input_ids" not in own:
        own["labels"] = own["labels"][own["labels"] != -100][None]
    return own


def run(model: PreTrainedModel, batch: Batch) -> Any:
    with exact():
        return model(**batch)


def outputs_of(case: Case, model: PreTrainedModel, batch: Batch) -> list[Tensor]:
    """The outputs that belong to each row."""
    outputs = run(model, batch)
    return [outputs[name] for name in FAMILIES[case.family].outputs]


def loss_of(model: PreTrainedModel, batch: Batch) -> Tensor:
    outputs = run(model, batch)
    return outputs.loss if "loss" in outputs else weigh(outputs.last_hidden_state)


def read(model: PreTrainedModel, **inputs: Any) -> Tensor:
    """One vector for each token: scores, or hidden states where there is no vocabulary."""
    outputs = run(model, inputs)
    return outputs.logits if "logits" in outputs else outputs.last_hidden_state


def close(one: Tensor, other: Tensor) -> bool:
    assert one.shape == other.shape
    return bool((one - other).abs().max() <= EXACT)


def weigh(read_out: Tensor) -> Tensor:
    """A number that depends on every output differently."""
    weights = torch.randn(read_out.shape, generator=torch.Generator().manual_seed(7), dtype=read_out.dtype)
    return (read_out * weights).sum()


def gradients(model: PreTrainedModel) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def same_gradients(one: PreTrainedModel, other: PreTrainedModel) -> bool:
    mine, theirs = gradients(one), gradients(other)
    assert mine.keys() == theirs.keys() and None not in [*mine.values(), *theirs.values()]
    return all(close(mine[name], theirs[name]) for name in mine)


# Object queries start as zeros, so attention among them changes nothing in the first layer.
ALIKE = re.compile(r"model\.decoder\.layers\.0\.self_attn(\.[qkv]_proj\.|_residual\.norm\.weight)")


def learn(case: Case, norm: str, feed_forward: str) -> None:
    model = build(case, norm=norm, feed_forward=feed_forward).train()
    loss_of(model, batch_of(case)).backward()
    for name, gradient in gradients(model).items():
        assert gradient is not None and gradient.isfinite().all(), name
        # A key's bias moves all scores of a query equally, which a softmax does not see, unless rope turns it.
        silent = name.endswith("k_proj.bias") or (case.family == "detector" and ALIKE.match(name))
        assert silent or gradient.abs().max() > 1e-9, name


AXES = list(itertools.product(get_args(NormName), get_args(FeedForwardName)))


@pytest.mark.parametrize(("case", "words"), sampled(in_turn(AXES), 37), ids=str)
def test_every_combination_learns(case: Case, words: tuple[str, str]) -> None:
    """Forward and backward, and every parameter is reached: one that is not crashes data-parallel training."""
    learn(case, *words)


@pytest.mark.slow
@pytest.mark.parametrize("words", AXES, ids=str)
@every(*SMALL)
def test_every_combination_learns_with_all_parts(case: Case, words: tuple[str, str]) -> None:
    learn(case, *words)


@every("decoder", "encoder-decoder", "speech")
@torch.no_grad()
def test_the_future_leaves_the_past_untouched(case: Case) -> None:
    model, inputs = model_of(case), inputs_of(case)
    name = "input_ids" if case.family == "decoder" else "decoder_input_ids"
    before = read(model, **inputs)
    for first in (1, 6, LENGTH - 1):
        changed = inputs[name].clone()
        changed[:, first:] = (changed[:, first:] - 1) % (VOCABULARY - 2) + 2
        after = read(model, **{**inputs, name: changed})
        assert torch.equal(before[:, :first], after[:, :first])
        assert ((before - after)[:, first:].abs().amax(-1) > 1e-6).all()


@every(*(name for name in FAMILIES if name != "decoder"), start=24)
@torch.no_grad()
def test_encoders_look_both_ways_and_the_texts_of_pairs_back(case: Case) -> None:
    """sdpa takes a module that does not say otherwise for a causal one."""
    encoder, batch = stacks(case, model_of(case))[0], alone(unlabelled(batch_of(case)), 0)
    name, given = next(iter(batch.items()))
    changed = given.clone()
    if name == "input_ids":
        changed[:, 2] = 2 + (changed[:, 2] - 1) % (VOCABULARY - 2)
    else:
        changed[..., -1, -1] += 1
    with exact():
        before, after = (encoder(**{name: inputs}).last_hidden_state for inputs in (given, changed))
    distances = (before - after).abs().amax(-1)[0]
    seen = (distances > 1e-9).tolist()
    # A causal text reads a column before it through tokens of that column alone, of which the last is one; the last
    # patch is the first of its block.
    last = 1 if (case.family, case.pattern) in (("dual-encoder", "column"), ("image-encoder", "fixed")) else 3
    nearest = seen[:3] if name == "input_ids" and case.family != "dual-encoder" else seen[: -last - 1 : -1]
    # A dilated window never reads what lies in its gaps.
    assert all(nearest[::2] if case.pattern == "dilated" else nearest)
    assert case.family != "dual-encoder" or (distances[:2] == 0).all()


@every(start=17)
def test_a_row_is_read_alone_as_in_a_batch_on_whichever_side_it_is_padded(case: Case) -> None:
    """Nothing becomes NaN either, in what padding gives and in gradients."""
    family, model = FAMILIES[case.family], copy.deepcopy(model_of(case))
    with torch.no_grad():
        rows = [outputs_of(case, model, alone(batch_of(case), row)) for row in range(2)]
    for sources, targets in itertools.product(family.sources, family.targets):
        together = outputs_of(case, model, batch_of(case, sources, targets))
        side = targets if len(family.targets) > 1 else sources
        assert all(output.isfinite().all() for output in together)
        real = []
        for row, own in enumerate(rows):
            for output, expected in zip(together, own, strict=True):
                count = len(expected[0])
                real.append(output[row][:count] if side == "right" else output[row][-count:])
                assert close(real[-1], expected[0])
    sum(weigh(output) for output in real).backward()
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients(model).values())


def rearranged(case: Case, order: list[int]) -> dict[str, Tensor]:
    """The inputs with the encoder's tokens or patches in another order."""
    inputs = inputs_of(case)
    if case.family != "image-encoder":
        return {**inputs, "input_ids": inputs["input_ids"][:, order]}
    pixels = inputs["pixel_values"]
    patches = pixels.unfold(2, 2, 2).unfold(3, 2, 2).flatten(2, 3)[:, :, order].unflatten(2, (3, 2))
    return {"pixel_values": patches.permute(0, 1, 2, 4, 3, 5).reshape(pixels.shape)}


def moves_with_its_inputs(case: Case, order: list[int]) -> bool:
    """Return whether outputs follow when inputs change places; a decoder reads its memory in any order."""
    model = model_of(case)
    before, after = read(model, **inputs_of(case)), read(model, **rearranged(case, order))
    if case.family == "image-encoder":
        order = [0, *(1 + place for place in order)]
    return close(before if case.family == "encoder-decoder" else before[:, order], after)


@every("encoder", "image-encoder", "encoder-decoder", start=5)
@torch.no_grad()
def test_only_without_position_and_pattern_order_is_unseen(case: Case) -> None:
    count = {"encoder": LENGTH, "image-encoder": 6, "encoder-decoder": SOURCE}[case.family]
    # A pattern may keep one of them: a shift by two is a shift by a row of the grid, which keeps its columns.
    shift, cycle = [(place + 2) % count for place in range(count)], [1, 2, 0, *range(3, count)]
    unseen = moves_with_its_inputs(case, shift) and moves_with_its_inputs(case, cycle)
    assert unseen == (case.position == "none" and case.pattern in ("full", *STATE_KERNELS))


def shifted(case: Case, first: int) -> Tensor:
    """Run the model with positions that count from `first`; a decoder's and its encoder's need not agree."""
    model, inputs = model_of(case), inputs_of(case)
    if case.family != "encoder-decoder":
        count = 7 if case.family == "image-encoder" else LENGTH
        return read(model, **inputs, position_ids=torch.arange(first, first + count)[None])
    with exact():
        places = torch.arange(2 * first, 2 * first + SOURCE)[None]
        memory = model.model.encoder(inputs.pop("input_ids"), position_ids=places)
    return read(model, **inputs, encoder_outputs=memory, decoder_position_ids=torch.arange(first, first + LENGTH)[None])


@every(*SMALL, positions=("none", *ROTARY_POSITIONS, *BIAS_POSITIONS))
@torch.no_grad()
def test_relative_positions_do_not_see_a_shift(case: Case) -> None:
    assert close(shifted(case, 0), shifted(case, 8))
    assert close(shifted(case, 0), read(model_of(case), **inputs_of(case)))


@every("encoder", "decoder", "encoder-decoder", positions=("learned", "grid", "sinusoidal", "sinusoidal_concat"))
@torch.no_grad()
def test_absolute_positions_see_a_shift(case: Case) -> None:
    assert not close(shifted(case, 0), shifted(case, 8))
    assert close(shifted(case, 0), read(model_of(case), **inputs_of(case)))


def make_cache(case: Case, kind: str) -> Any:
    config = model_of(case).config.get_text_config(decoder=True)
    memory = case.family != "decoder"
    if kind == "dynamic":
        own = DynamicCache(config=config)
        # As `generate` makes them: memory's cache from the decoder's config, windows and all.
        return EncoderDecoderCache(own, DynamicCache(config=config)) if memory else own
    own = StaticCache(config, max_cache_len=LENGTH + 3)
    return EncoderDecoderCache(own, StaticCache(config, max_cache_len=SOURCE + 2)) if memory else own


def by_chunks(case: Case, batch: Batch, kind: str, given: str) -> Tensor:
    """The same rows in pieces, each reading what the cache holds of those before: how `generate` calls a model."""
    model, past = model_of(case), make_cache(case, kind)
    prefix = "" if case.family == "decoder" else "decoder_"
    mine = {key: value for key, value in batch.items() if key.startswith(prefix)}
    rest = {key: value for key, value in batch.items() if key not in mine}
    mask, outputs = mine.pop(f"{prefix}attention_mask"), []
    for first, last in itertools.pairwise((0, 6, 7, 8, LENGTH)):
        chunk = {key: value[:, first:last] for key, value in mine.items()}
        chunk[f"{prefix}attention_mask"] = mask[:, :last]
        if given.startswith("prepared"):
            hidden = torch.zeros(2, last - first, 12, dtype=torch.float64)
            places = chunk.get(f"{prefix}position_ids")
            prepared = model.create_masks_for_generate(model.config, hidden, mask[:, :last], past, places)
            chunk[f"{prefix}attention_mask"] = prepared
        output = run(model, {**rest, **chunk, "past_key_values": past, "use_cache": True})
        outputs.append(output.logits)
        if prefix:
            # From now on memory must come from the cache: the encoder's output is there only for its shape.
            memory = torch.full_like(output.encoder_last_hidden_state, torch.nan)
            rest = {"encoder_outputs": (memory,), "attention_mask": rest["attention_mask"]}
    return torch.cat(outputs, 1)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        *(("dynamic", "mask"), ("dynamic", "positions"), ("static", "mask")),
        *(("static", "prepared mask"), ("static", "prepared positions")),
    ],
)
@every("decoder", "encoder-decoder", "speech", start=9)
@torch.no_grad()
def test_cached_is_full(case: Case, kind: str, given: str) -> None:
    """Rows padded in front, with positions that are counted and with positions that begin elsewhere."""
    batch = unlabelled(batch_of(case, FAMILIES[case.family].sources[-1], "left"))
    prefix = "" if case.family == "decoder" else "decoder_"
    real = batch[f"{prefix}attention_mask"].bool()
    if not given.endswith("mask"):
        # As transformers numbers padding: 1.
        batch[f"{prefix}position_ids"] = (real.cumsum(-1) + 4).masked_fill(~real, 1)
    assert close(by_chunks(case, batch, kind, given)[real], read(model_of(case), **batch)[real])


@pytest.mark.parametrize("position", sorted(BIAS_POSITIONS))
@torch.no_grad()
def test_a_bias_follows_the_window_of_a_cache(position: str) -> None:
    """A cache with a window drops its first keys, and the bias those of the same positions."""
    case = Case("decoder", position, "sliding", "pre-norm")
    batch = unlabelled(batch_of(case, "left"))
    real = batch["attention_mask"].bool()
    assert close(by_chunks(case, batch, "dynamic", "mask")[real], read(model_of(case), **batch)[real])


DOCUMENTS = (5, LENGTH - 5)
BOUNDARIES = torch.tensor([0, *itertools.accumulate(DOCUMENTS)], dtype=torch.int32)
RESTARTS = torch.cat([torch.arange(part) for part in DOCUMENTS])[None]
PACKING = {
    "positions": {"position_ids": RESTARTS},
    "positions and ones": {"position_ids": RESTARTS, "attention_mask": torch.ones(1, LENGTH, dtype=torch.long)},
    "boundaries": {"cu_seq_lens_q": BOUNDARIES},
    "boundaries and ones": {"cu_seq_lens_q": BOUNDARIES, "attention_mask": torch.ones(1, LENGTH, dtype=torch.long)},
    "both": {"position_ids": RESTARTS, "cu_seq_lens_q": BOUNDARIES},
}


@pytest.mark.parametrize("backend", BACKENDS)
@every("encoder", "decoder", start=13)
@torch.no_grad()
def test_packed_is_separate(case: Case, backend: str) -> None:
    """Documents in one row read as they do alone, and nothing at all leaks from one to the other."""
    plain, row, other = shallow(case) if backend == "flex_attention" else model_of(case), tokens(1), tokens(1, seed=5)
    model = with_backend(plain, backend)
    apart = torch.cat([read(plain, input_ids=part) for part in row.split(DOCUMENTS, 1)], 1)
    first, second = (slice(0, DOCUMENTS[0]), slice(DOCUMENTS[0], LENGTH))
    # Backends differ in what they make of a predicate, and it is the same for all ways of packing.
    names = PACKING if backend == "sdpa" else ["positions and ones"]
    with differentiable_flex():
        for name, packing in ((name, PACKING[name]) for name in names):
            together = read(model, input_ids=row, **packing)
            assert close(together, apart)
            if name not in ("positions and ones", "boundaries"):
                continue
            # A causal stack could not look from the first document into the second anyway.
            for changed, kept in [(first, second), (second, first)][: 1 if case.family == "decoder" else 2]:
                leaking = row.clone()
                leaking[:, changed] = other[:, changed]
                assert torch.equal(read(model, input_ids=leaking, **packing)[:, kept], together[:, kept])


@every("decoder", start=21)
@torch.no_grad()
def test_packed_loss_is_that_of_the_documents(case: Case) -> None:
    """No document's first token is the target of the one before it."""
    model, row = model_of(case), tokens(1)
    counts = [part - 1 for part in DOCUMENTS]
    with exact():
        losses = [model(input_ids=part, labels=part).loss for part in row.split(DOCUMENTS, 1)]
        expected = sum(loss * count for loss, count in zip(losses, counts, strict=True)) / sum(counts)
        for packing in PACKING.values():
            assert close(model(input_ids=row, labels=row, **packing).loss, expected)


@every(start=30)
def test_backends_agree(case: Case) -> None:
    """Loss and gradients of eager, sdpa and flex, on a padded batch."""
    model, batch = copy.deepcopy(shallow(case)), batch_of(case, FAMILIES[case.family].sources[-1])
    losses, slopes = {}, {}
    with differentiable_flex():
        for backend in BACKENDS:
            model.set_attn_implementation(backend)
            assert {stack.config._attn_implementation for stack in stacks(case, model)} == {backend}
            losses[backend] = loss_of(model, batch)
            slopes[backend] = torch.autograd.grad(losses[backend], list(model.parameters()))
    for backend in BACKENDS[1:]:
        assert close(losses[backend], losses["eager"])
        assert all(itertools.starmap(close, zip(slopes[backend], slopes["eager"], strict=True)))


@every(start=11)
def test_checkpointing_changes_nothing(case: Case) -> None:
    """The loss and every gradient, also of a bias and a memory."""
    plain, batch = copy.deepcopy(model_of(case)).train(), batch_of(case)
    expected = loss_of(plain, batch)
    expected.backward()
    model, runs = copy.deepcopy(model_of(case)).train(), []
    model.activation_checkpointing_enable({"use_reentrant": False})
    for stack in stacks(case, model):
        stack.layers[0].self_attn.register_forward_pre_hook(lambda *_: runs.append(1))
    loss = loss_of(model, batch)
    loss.backward()
    assert close(loss, expected) and same_gradients(model, plain)
    # Each first layer ran twice: it was recomputed.
    assert len(runs) == 2 * len(stacks(case, model))
    with pytest.raises(ValueError, match="use_reentrant"):
        model.activation_checkpointing_enable({"use_reentrant": True})


def same_bits(one: PreTrainedModel, other: PreTrainedModel) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[key], theirs[key]) for key in mine)


# How a model is saved, which class loads it, and in which precision.
FOLDERS = {
    "direct": ({}, "direct", torch.float64),
    "auto": ({}, "auto", torch.float64),
    "sharded": ({"max_shard_size": "2KB"}, "auto", torch.float64),
    "single": ({}, "direct", torch.float32),
    "bf16": ({}, "auto", torch.bfloat16),
    "bf16 sharded": ({"max_shard_size": "1KB"}, "direct", torch.bfloat16),
    "built on meta": ({}, "meta", torch.float64),
}


def load(case: Case, path: Any, how: str, dtype: torch.dtype) -> PreTrainedModel:
    direct, auto = FAMILIES[case.family].model_class, FAMILIES[case.family].auto_class
    if how == "meta":
        # What `from_pretrained` does inside, by hand: no value but the checkpoint's can be there.
        with torch.device("meta"):
            model = direct(direct.config_class.from_pretrained(path))
        model.load_state_dict(model_of(case).state_dict(), assign=True)
        model.tie_weights()
        return model.eval()
    return (direct if how == "direct" else getattr(transformers, auto)).from_pretrained(path, dtype=dtype)


def settings(values: dict[str, Any]) -> dict[str, Any]:
    """All that a config and its parts say, but for where they were loaded from and in which precision."""
    kept = {name: value for name, value in values.items() if name not in ("_name_or_path", "dtype")}
    return {name: settings(value) if isinstance(value, dict) else value for name, value in kept.items()}


def save_and_load(case: Case, path: Any, folder: str) -> None:
    saving, how, dtype = FOLDERS[folder]
    model, batch = copy.deepcopy(model_of(case)).to(dtype), unlabelled(batch_of(case))
    batch = {name: value.to(dtype) if value.is_floating_point() else value for name, value in batch.items()}
    model.save_pretrained(path, **saving)
    assert (path / "model.safetensors.index.json").exists() == ("max_shard_size" in saving)
    loaded = load(case, path, how, dtype)
    assert type(loaded) is type(model) and not loaded.training and {p.dtype for p in loaded.parameters()} == {dtype}
    assert same_bits(loaded, model)
    # Weights mapped from a file may lie so in memory that another kernel suits them: they are moved.
    both = (outputs_of(case, each, batch) for each in (model, copy.deepcopy(loaded)))
    assert all(itertools.starmap(torch.equal, zip(*both, strict=True)))
    # Ties and everything else a config says came back too.
    assert settings(loaded.config.to_dict()) == settings(model.config.to_dict())
    ties = [{id(parameter) for _, parameter in each.named_parameters()} for each in (loaded, model)]
    assert len(ties[0]) == len(ties[1])


@pytest.mark.parametrize(("case", "folder"), sampled(in_turn(FOLDERS), 37, 3), ids=str)
@torch.no_grad()
def test_saved_is_loaded(case: Case, folder: str, tmp_path: Any) -> None:
    save_and_load(case, tmp_path, folder)


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
@every(*SMALL)
@torch.no_grad()
def test_saved_is_loaded_every_way(case: Case, folder: str, tmp_path: Any) -> None:
    save_and_load(case, tmp_path, folder)


# Graphs ------------------------------------------------------------------------------------------------------------------


def compiled(case: Case, backend: str, **fields: Any) -> None:
    """One graph, and the numbers of the model itself."""
    torch._dynamo.reset()
    model, batch = build(case, **fields) if fields else model_of(case), unlabelled(batch_of(case))
    graph = torch.compile(model, fullgraph=True, backend=backend)
    assert all(
        itertools.starmap(close, zip(outputs_of(case, graph, batch), outputs_of(case, model, batch), strict=True))
    )


def turns(families: Any, patterns: int | None = None) -> Iterator[Case]:
    """Every position of each family, and beside it the next word of every other axis."""
    for name in families:
        words = itertools.cycle(FAMILIES[name].patterns[:patterns]), itertools.cycle(ORDERS)
        turned = (Case(name, *turn) for turn in zip(FAMILIES[name].positions, *words, strict=False))
        yield from filter(is_allowed, turned)


# One row after another takes the next word of every axis, until each has had its turn.
COVERING = [
    case
    for number, case in enumerate(turns(SMALL, 3))
    if number % len(POSITIONS) % len(SMALL) == number // len(POSITIONS)
]
LARGE = [*turns(name for name in FAMILIES if name not in SMALL)]


@pytest.mark.usefixtures("plain_paths")
@pytest.mark.parametrize("case", sampled(COVERING, 5), ids=str)
@torch.no_grad()
def test_one_graph(case: Case) -> None:
    compiled(case, "eager", num_hidden_layers=1)


@pytest.mark.usefixtures("plain_paths")
@pytest.mark.slow
@pytest.mark.parametrize("case", [*product(*SMALL), *LARGE], ids=str)
@torch.no_grad()
def test_one_graph_for_every_combination(case: Case) -> None:
    compiled(case, "aot_eager" if case.family in SMALL else "eager")


def exported(case: Case, **fields: Any) -> None:
    """A graph that needs no Python gives the same numbers, for more rows and shorter ones as well."""
    model, inputs = build(case, **fields), inputs_of(case) if case.family in SMALL else unlabelled(batch_of(case))
    constant = {"use_cache": False} if case.family in ("decoder", "encoder-decoder", "speech") else {}
    sizes = (0,) if case.family == "image-encoder" else (0, 1)
    free, batches = None, [inputs]
    if case.family in SMALL:
        free = {name: dict.fromkeys(sizes, torch.export.Dim.AUTO) for name in inputs} | dict.fromkeys(constant)
        more = {name: torch.cat((value, value[:1])) for name, value in inputs.items()}
        batches.append({name: value[:, :-2] if len(sizes) > 1 else value for name, value in more.items()})
    with exact():
        program = torch.export.export(model, (), {**inputs, **constant}, dynamic_shapes=free).module()
        for given in batches:
            outputs, expected = program(**given, **constant), model(**given, **constant)
            assert all(close(outputs[name], expected[name]) for name in FAMILIES[case.family].outputs)


# The last of them are one of each family, and the positions that the first of each family leave.
@pytest.mark.parametrize("case", sampled(COVERING[-len(SMALL) :], 5), ids=str)
@torch.no_grad()
def test_export(case: Case) -> None:
    exported(case, num_hidden_layers=1)


@pytest.mark.slow
@pytest.mark.parametrize("case", [*product(*SMALL), *LARGE], ids=str)
@torch.no_grad()
def test_export_of_every_combination(case: Case) -> None:
    exported(case)


@pytest.mark.slow
@pytest.mark.parametrize("family", SMALL)
def test_training_through_inductor(family: str) -> None:
    """`torch.compile(model)`, then a step; needs a C++ compiler, as torch does here."""
    torch._dynamo.reset()
    case = Case(family, "t5", "mixed", "pre-norm")
    plain, model = (copy.deepcopy(model_of(case)).float().train() for _ in range(2))
    batch = unlabelled(batch_of(case))
    batch = {name: value.float() if value.is_floating_point() else value for name, value in batch.items()}
    outputs = [each(**batch)[0] for each in (plain, torch.compile(model, fullgraph=True))]
    for output in outputs:
        weigh(output).backward()
    assert (outputs[0] - outputs[1]).abs().max() <= 1e-4
    for name, gradient in gradients(model).items():
        assert torch.allclose(gradient, gradients(plain)[name], rtol=1e-4, atol=1e-4), name


@pytest.mark.slow
@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_flex_through_inductor(position: str) -> None:
    """Flex attention with its own kernel, which torch has for forward passes on a CPU."""
    torch._dynamo.reset()
    case = Case("decoder", position, "block_sparse", "pre-norm")
    batch = unlabelled(batch_of(case))
    model, plain = with_backend(model_of(case), "flex_attention").float(), copy.deepcopy(model_of(case)).float()
    assert (model(**batch).logits - plain(**batch).logits)[batch["attention_mask"].bool()].abs().max() <= 1e-5


@pytest.mark.gpu
@every(*SMALL)
def test_flex_on_an_accelerator(case: Case) -> None:
    """Values and gradients of the fused kernel, in single precision."""
    inputs = {name: value.cuda() for name, value in inputs_of(case).items()}
    inputs = {name: value.float() if value.is_floating_point() else value for name, value in inputs.items()}
    models = [with_backend(model_of(case), backend).float().cuda() for backend in ("eager", "flex_attention")]
    outputs = [model(**inputs)[0] for model in models]
    for output in outputs:
        (output.square().mean()).backward()
    assert (outputs[0] - outputs[1]).abs().max() <= 1e-3
    for name, gradient in gradients(models[1]).items():
        assert torch.allclose(gradient, gradients(models[0])[name], rtol=1e-2, atol=1e-3), name
