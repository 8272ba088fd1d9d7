"""Every property for every position × pattern × norm order × family; nothing here is picked by hand.

The words come from the axes, so a new one is tested by existing; `mixed` gives each layer another pattern. Models are
tiny, jittered, in double precision and shared by all tests: whoever changes one copies it first.
"""

import copy
import itertools
from functools import cache
from typing import Any, NamedTuple, get_args

import pytest
import torch
import transformers
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel, StaticCache

from comparison import EXACT, differentiable_flex, exact
from errors import raises_sentence
from qkv.configuration import QkvDecoderConfig, QkvEncoderConfig, QkvEncoderDecoderConfig, QkvImageEncoderConfig
from qkv.configuration.axes import (
    BIAS_POSITIONS,
    MASKLESS_PATTERNS,
    ROTARY_POSITIONS,
    FeedForwardName,
    NormName,
    PatternName,
    PositionName,
)
from qkv.modeling import (
    QkvDecoderForCausalLM,
    QkvEncoderDecoderForConditionalGeneration,
    QkvEncoderForMaskedLM,
    QkvImageEncoderModel,
)
from sampling import sampled
from tiny import jitter

POSITIONS = get_args(PositionName)
PATTERNS = (*get_args(PatternName), "mixed")
ORDERS = {"pre-norm": True, "post-norm": False}
BACKENDS = ("eager", "sdpa", "flex_attention")
VOCABULARY, LENGTH, SOURCE = 23, 11, 7

SIZES = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 4,
    "intermediate_size": 14,
    "sliding_window": 4,
    "block_size": 2,
    "text_length": 1,
    "grid_columns": 4,
    "grid_kernel": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
}
TEXT = {"vocab_size": VOCABULARY, "max_position_embeddings": 32, "pad_token_id": 0}
IMAGE = {"image_size": [6, 4], "patch_size": 2, "pooling": "mean"}
FAMILIES = {
    "encoder": (QkvEncoderForMaskedLM, QkvEncoderConfig, TEXT, "AutoModelForMaskedLM"),
    "vision": (QkvImageEncoderModel, QkvImageEncoderConfig, IMAGE, "AutoModel"),
    "decoder": (QkvDecoderForCausalLM, QkvDecoderConfig, TEXT, "AutoModelForCausalLM"),
    "encoder-decoder": (
        QkvEncoderDecoderForConditionalGeneration,
        QkvEncoderDecoderConfig,
        {**TEXT, "eos_token_id": 1, "decoder_start_token_id": 0},
        "AutoModelForSeq2SeqLM",
    ),
}


class Case(NamedTuple):
    family: str
    position: str
    pattern: str
    order: str

    def __str__(self) -> str:
        return "_".join(self)


def product(*families: str, positions: Any = POSITIONS, patterns: Any = PATTERNS) -> list[Case]:
    return list(itertools.starmap(Case, itertools.product(families or FAMILIES, positions, patterns, ORDERS)))


def every(*families: str, **words: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", sampled(product(*families, **words), 29), ids=str)


def in_turn(words: Any, *families: str, **choice: Any) -> list[tuple[Case, Any]]:
    """Every case with one of the words, and every word with every family and position."""
    return list(zip(product(*families, **choice), itertools.cycle(words), strict=False))


def fitting(config_class: Any, sizes: dict[str, Any]) -> dict[str, Any]:
    """The sizes that a config has, or all of its parts: a grid is derived for images, and sound has none."""
    parts = config_class.sub_configs.values() or [config_class]
    return {name: value for name, value in sizes.items() if all(name in part.known_fields() for part in parts)}


def config_of(case: Case, **fields: Any) -> Any:
    config_class = FAMILIES[case.family][1]
    given = {
        **fitting(config_class, SIZES),
        **FAMILIES[case.family][2],
        "position": case.position,
        "norm_first": ORDERS[case.order],
    }
    if case.pattern == "mixed":
        words = list(get_args(PatternName))
        given |= {"pattern": words, "num_hidden_layers": len(words)}
    else:
        given["pattern"] = case.pattern
    return config_class(**{**given, **fields})


def build(case: Case, **fields: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    return jitter(FAMILIES[case.family][0](config_of(case, **fields))).double().eval()


@cache
def model_of(case: Case) -> PreTrainedModel:
    return build(case)


def stacks(model: PreTrainedModel) -> list[Any]:
    """The encoder's stack, the decoder's, or both."""
    base = model.base_model
    return [base.encoder, base.decoder] if model.config.is_encoder_decoder else [base]


@cache
def shallow(case: Case) -> PreTrainedModel:
    """With one layer where all are alike: enough to compare backends, of which flex is slow here."""
    return build(case, **({} if case.pattern == "mixed" else {"num_hidden_layers": 1}))


def with_backend(model: PreTrainedModel, backend: str) -> PreTrainedModel:
    model = copy.deepcopy(model)
    model.set_attn_implementation(backend)
    assert {stack.config._attn_implementation for stack in stacks(model)} == {backend}
    return model


def tokens(rows: int = 2, length: int = LENGTH, seed: int = 0) -> Tensor:
    return torch.randint(2, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def inputs_of(case: Case) -> dict[str, Tensor]:
    if case.family == "vision":
        generator = torch.Generator().manual_seed(0)
        return {"pixel_values": torch.randn(2, 3, 6, 4, generator=generator, dtype=torch.float64)}
    if case.family == "encoder-decoder":
        return {"input_ids": tokens(length=SOURCE, seed=1), "decoder_input_ids": tokens()}
    return {"input_ids": tokens()}


def read(model: PreTrainedModel, **inputs: Any) -> Tensor:
    """One vector for each token: scores, or hidden states where there is no vocabulary."""
    with exact():
        outputs = model(**inputs)
    return outputs.last_hidden_state if isinstance(model, QkvImageEncoderModel) else outputs.logits


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


def learn(case: Case, norm: str, feed_forward: str) -> None:
    model = build(case, norm=norm, feed_forward=feed_forward).train()
    weigh(read(model, **inputs_of(case))).backward()
    for name, gradient in gradients(model).items():
        assert gradient is not None and gradient.isfinite().all(), name
        # A key's bias moves all scores of a query equally, which a softmax does not see, unless rope turns it.
        silent = name.endswith("k_proj.bias")
        assert silent or gradient.abs().max() > 1e-9, name


AXES = list(itertools.product(get_args(NormName), get_args(FeedForwardName)))


@pytest.mark.parametrize(("case", "words"), sampled(in_turn(AXES), 29), ids=str)
def test_every_combination_learns(case: Case, words: tuple[str, str]) -> None:
    """Forward and backward, and every parameter is reached: one that is not crashes data-parallel training."""
    learn(case, *words)


@pytest.mark.slow
@pytest.mark.parametrize("words", AXES, ids=str)
@every()
def test_every_combination_learns_with_all_parts(case: Case, words: tuple[str, str]) -> None:
    learn(case, *words)


@every("decoder", "encoder-decoder")
@torch.no_grad()
def test_the_future_leaves_the_past_untouched(case: Case) -> None:
    model, inputs = model_of(case), inputs_of(case)
    name = "decoder_input_ids" if case.family == "encoder-decoder" else "input_ids"
    before = read(model, **inputs)
    for first in (1, 6, LENGTH - 1):
        changed = inputs[name].clone()
        changed[:, first:] = (changed[:, first:] - 1) % (VOCABULARY - 2) + 2
        after = read(model, **{**inputs, name: changed})
        assert torch.equal(before[:, :first], after[:, :first])
        assert ((before - after)[:, first:].abs().amax(-1) > 1e-6).all()


@every("encoder", "vision", "encoder-decoder")
@torch.no_grad()
def test_encoders_look_ahead(case: Case) -> None:
    """sdpa takes a module that does not say otherwise for a causal one."""
    model, inputs = model_of(case), inputs_of(case)
    changed = {name: value.clone() for name, value in inputs.items()}
    if case.family == "vision":
        changed["pixel_values"][..., -1, -1] += 1
    else:
        changed["input_ids"][:, -1] = 2 + (changed["input_ids"][:, -1] - 1) % (VOCABULARY - 2)
    encoder = stacks(model)[0]
    before, after = (
        encoder(**{key: value for key, value in given.items() if "decoder" not in key}).last_hidden_state
        for given in (inputs, changed)
    )
    assert ((before - after)[:, -3:].abs().amax(-1) > 1e-9).all()


def pad(rows: list[Tensor], side: str) -> tuple[Tensor, Tensor]:
    """Rows of different lengths as one batch, with random tokens for padding: nobody may read them."""
    length = max(map(len, rows))
    ids, mask = tokens(len(rows), length, seed=9), torch.zeros(len(rows), length, dtype=torch.long)
    for row, real in enumerate(rows):
        place = slice(0, len(real)) if side == "right" else slice(length - len(real), length)
        ids[row, place], mask[row, place] = real, 1
    return ids, mask


def padded(case: Case, targets: str = "right", sources: str = "right") -> tuple[dict[str, Tensor], Tensor]:
    """A batch with a row of full length and a shorter one, and which outputs are real."""
    ids, mask = pad([tokens()[0], tokens()[1, : LENGTH - 4]], targets)
    if case.family != "encoder-decoder":
        return {"input_ids": ids, "attention_mask": mask}, mask.bool()
    source, source_mask = pad([tokens(seed=1)[0, :SOURCE], tokens(seed=1)[1, : SOURCE - 2]], sources)
    batch = {"input_ids": source, "attention_mask": source_mask}
    return {**batch, "decoder_input_ids": ids, "decoder_attention_mask": mask}, mask.bool()


def alone(case: Case, row: int) -> dict[str, Tensor]:
    """A row of `padded` without its padding."""
    batch, real = padded(case)
    ids = batch.get("decoder_input_ids", batch["input_ids"])[row][real[row]][None]
    if case.family != "encoder-decoder":
        return {"input_ids": ids}
    return {"input_ids": batch["input_ids"][row][batch["attention_mask"][row].bool()][None], "decoder_input_ids": ids}


@every("encoder", "decoder", "encoder-decoder")
def test_padding_changes_nothing(case: Case) -> None:
    """A row reads the same alone, padded on the right, and padded on the left; and nothing becomes NaN."""
    model = copy.deepcopy(model_of(case))
    with torch.no_grad():
        expected = torch.cat([read(model, **alone(case, row))[0] for row in range(2)])
    both = case.family == "encoder-decoder"
    for targets, sources in itertools.product(("right", "left"), ("right", "left") if both else ("right",)):
        batch, real = padded(case, targets, sources)
        outputs = read(model, **batch)
        assert outputs.isfinite().all()
        assert close(outputs[real], expected)
    weigh(outputs[real]).backward()
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())


@every()
@torch.no_grad()
def test_rows_do_not_see_each_other(case: Case) -> None:
    model, inputs = model_of(case), inputs_of(case)
    together = read(model, **inputs)
    for row in range(2):
        assert close(
            together[row : row + 1], read(model, **{key: value[row : row + 1] for key, value in inputs.items()})
        )


def rearranged(case: Case, order: list[int]) -> dict[str, Tensor]:
    """The inputs with the encoder's tokens or patches in another order."""
    inputs = inputs_of(case)
    if case.family != "vision":
        return {**inputs, "input_ids": inputs["input_ids"][:, order]}
    pixels = inputs["pixel_values"]
    patches = pixels.unfold(2, 2, 2).unfold(3, 2, 2).flatten(2, 3)[:, :, order].unflatten(2, (3, 2))
    return {"pixel_values": patches.permute(0, 1, 2, 4, 3, 5).reshape(pixels.shape)}


def moves_with_its_inputs(case: Case) -> bool:
    """Return whether outputs follow when inputs change places; a decoder reads its memory in any order."""
    model, count = model_of(case), {"encoder": LENGTH, "vision": 6, "encoder-decoder": SOURCE}[case.family]
    order = [(place + 2) % count for place in range(count)]
    before, after = read(model, **inputs_of(case)), read(model, **rearranged(case, order))
    if case.family == "vision":
        order = [0, *(1 + place for place in order)]
    return close(before if case.family == "encoder-decoder" else before[:, order], after)


@pytest.mark.parametrize("case", sampled(product("encoder", "vision", "encoder-decoder"), 5), ids=str)
@torch.no_grad()
def test_only_without_position_and_pattern_order_is_unseen(case: Case) -> None:
    assert moves_with_its_inputs(case) == (case.position == "none" and case.pattern == "full")


def shifted(case: Case, first: int) -> Tensor:
    """Run the model with positions that count from `first`; a decoder's and its encoder's need not agree."""
    model, inputs = model_of(case), inputs_of(case)
    if case.family != "encoder-decoder":
        count = 7 if case.family == "vision" else LENGTH
        return read(model, **inputs, position_ids=torch.arange(first, first + count)[None])
    with exact():
        places = torch.arange(2 * first, 2 * first + SOURCE)[None]
        memory = model.model.encoder(inputs.pop("input_ids"), position_ids=places)
    return read(model, **inputs, encoder_outputs=memory, decoder_position_ids=torch.arange(first, first + LENGTH)[None])


@every(positions=("none", *ROTARY_POSITIONS, *BIAS_POSITIONS))
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
    memory = case.family == "encoder-decoder"
    if kind == "dynamic":
        own = DynamicCache(config=config)
        # As `generate` makes them: memory's cache from the decoder's config, windows and all.
        return EncoderDecoderCache(own, DynamicCache(config=config)) if memory else own
    own = StaticCache(config, max_cache_len=LENGTH + 3)
    return EncoderDecoderCache(own, StaticCache(config, max_cache_len=SOURCE + 2)) if memory else own


def by_chunks(case: Case, batch: dict[str, Tensor], kind: str, given: str) -> Tensor:
    """The same row in pieces, each reading what the cache holds of those before: how `generate` calls a model."""
    model, past = model_of(case), make_cache(case, kind)
    prefix = "decoder_" if case.family == "encoder-decoder" else ""
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
        outputs.append(read(model, **rest, **chunk, past_key_values=past, use_cache=True))
        if prefix:
            # From now on memory must come from the cache: the encoder's output is there only for its shape.
            rest["encoder_outputs"] = (torch.full((2, SOURCE, 12), torch.nan, dtype=torch.float64),)
    return torch.cat(outputs, 1)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        *(("dynamic", "mask"), ("dynamic", "positions"), ("static", "mask")),
        *(("static", "prepared mask"), ("static", "prepared positions")),
    ],
)
@every("decoder", "encoder-decoder")
@torch.no_grad()
def test_cached_is_full(case: Case, kind: str, given: str) -> None:
    """Rows padded in front, with positions that are counted and with positions that begin elsewhere."""
    batch, real = padded(case, "left")
    if not given.endswith("mask"):
        name = "decoder_position_ids" if case.family == "encoder-decoder" else "position_ids"
        # As transformers numbers padding: 1.
        batch[name] = (real.cumsum(-1) + 4).masked_fill(~real, 1)
    assert close(by_chunks(case, batch, kind, given)[real], read(model_of(case), **batch)[real])


@pytest.mark.parametrize("position", sorted(BIAS_POSITIONS))
@torch.no_grad()
def test_a_bias_follows_the_window_of_a_cache(position: str) -> None:
    """A cache with a window drops its first keys, and the bias those of the same positions."""
    case = Case("decoder", position, "sliding", "pre-norm")
    batch, real = padded(case, "left")
    assert close(by_chunks(case, batch, "dynamic", "mask")[real], read(model_of(case), **batch)[real])


PARTS = (5, LENGTH - 5)
BOUNDARIES = torch.tensor([0, *itertools.accumulate(PARTS)], dtype=torch.int32)
RESTARTS = torch.cat([torch.arange(part) for part in PARTS])[None]
PACKING = {
    "positions": {"position_ids": RESTARTS},
    "positions and ones": {"position_ids": RESTARTS, "attention_mask": torch.ones(1, LENGTH, dtype=torch.long)},
    "boundaries": {"cu_seq_lens_q": BOUNDARIES},
    "boundaries and ones": {"cu_seq_lens_q": BOUNDARIES, "attention_mask": torch.ones(1, LENGTH, dtype=torch.long)},
    "both": {"position_ids": RESTARTS, "cu_seq_lens_q": BOUNDARIES},
}


@pytest.mark.parametrize("backend", BACKENDS)
@every("encoder", "decoder")
@torch.no_grad()
def test_packed_is_separate(case: Case, backend: str) -> None:
    """Documents in one row read as they do alone, and nothing at all leaks from one to the other."""
    plain, row, other = shallow(case) if backend == "flex_attention" else model_of(case), tokens(1), tokens(1, seed=5)
    model = with_backend(plain, backend)
    apart = torch.cat([read(plain, input_ids=part) for part in row.split(PARTS, 1)], 1)
    first, second = (slice(0, PARTS[0]), slice(PARTS[0], LENGTH))
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


@every("decoder")
@torch.no_grad()
def test_packed_loss_is_that_of_the_documents(case: Case) -> None:
    """No document's first token is the target of the one before it."""
    model, row = model_of(case), tokens(1)
    counts = [part - 1 for part in PARTS]
    with exact():
        losses = [model(input_ids=part, labels=part).loss for part in row.split(PARTS, 1)]
        expected = sum(loss * count for loss, count in zip(losses, counts, strict=True)) / sum(counts)
        for packing in PACKING.values():
            assert close(model(input_ids=row, labels=row, **packing).loss, expected)


@every()
def test_backends_agree(case: Case) -> None:
    """Values and gradients of eager, sdpa and flex, on a padded batch."""
    batch, real = (inputs_of(case), ...) if case.family == "vision" else padded(case, "left", "left")
    model = copy.deepcopy(shallow(case))
    outputs, slopes = {}, {}
    with differentiable_flex():
        for backend in BACKENDS:
            model.set_attn_implementation(backend)
            outputs[backend] = read(model, **batch)[real]
            slopes[backend] = torch.autograd.grad(weigh(outputs[backend]), list(model.parameters()))
    for backend in BACKENDS[1:]:
        assert close(outputs[backend], outputs["eager"])
        assert all(itertools.starmap(close, zip(slopes[backend], slopes["eager"], strict=True)))


def loss_of(case: Case, model: PreTrainedModel) -> Tensor:
    if case.family == "vision":
        return weigh(read(model, **inputs_of(case)))
    batch, _ = padded(case)
    with exact():
        return model(**batch, labels=batch.get("decoder_input_ids", batch["input_ids"])).loss


@every()
def test_checkpointing_changes_nothing(case: Case) -> None:
    """The loss and every gradient; a bias or a memory that reentrant checkpointing cannot see would get none."""
    plain = copy.deepcopy(model_of(case)).train()
    expected = loss_of(case, plain)
    expected.backward()
    for reentrant in (True, False):
        model, runs = copy.deepcopy(model_of(case)).train(), []
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
        for stack in stacks(model):
            stack.layers[0].self_attn.register_forward_pre_hook(lambda *_, runs=runs: runs.append(1))
        loss = loss_of(case, model)
        loss.backward()
        assert close(loss, expected) and same_gradients(model, plain)
        # Each first layer ran twice: it was recomputed.
        assert len(runs) == 2 * len(stacks(model))


def same_bits(one: PreTrainedModel, other: PreTrainedModel) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[key], theirs[key]) for key in mine)


def reads_alike(one: PreTrainedModel, other: PreTrainedModel, inputs: dict[str, Tensor]) -> bool:
    """Bit for bit. Weights mapped from a file may lie so in memory that another kernel suits them: they are moved."""
    return torch.equal(read(one, **inputs), read(copy.deepcopy(other), **inputs))


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
    direct, _, _, auto = FAMILIES[case.family]
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
    model, inputs = copy.deepcopy(model_of(case)).to(dtype), inputs_of(case)
    model.save_pretrained(path, **saving)
    assert (path / "model.safetensors.index.json").exists() == ("max_shard_size" in saving)
    loaded = load(case, path, how, dtype)
    assert type(loaded) is type(model) and not loaded.training and {p.dtype for p in loaded.parameters()} == {dtype}
    if dtype != torch.float64 and "pixel_values" in inputs:
        inputs = {"pixel_values": inputs["pixel_values"].to(dtype)}
    assert same_bits(loaded, model) and reads_alike(model, loaded, inputs)
    # Ties and everything else a config says came back too.
    assert settings(loaded.config.to_dict()) == settings(model.config.to_dict())
    ties = [{id(parameter) for _, parameter in each.named_parameters()} for each in (loaded, model)]
    assert len(ties[0]) == len(ties[1])


@pytest.mark.parametrize(("case", "folder"), sampled(in_turn(FOLDERS), 29), ids=str)
@torch.no_grad()
def test_saved_is_loaded(case: Case, folder: str, tmp_path: Any) -> None:
    save_and_load(case, tmp_path, folder)


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
@every()
@torch.no_grad()
def test_saved_is_loaded_every_way(case: Case, folder: str, tmp_path: Any) -> None:
    save_and_load(case, tmp_path, folder)


def compiled(case: Case, backend: str, **fields: Any) -> None:
    """One graph, and the numbers of the model itself."""
    torch._dynamo.reset()
    model = build(case, **fields) if fields else model_of(case)
    inputs = padded(case)[0] if case.family != "vision" else inputs_of(case)
    run = torch.compile(model, fullgraph=True, backend=backend)
    with exact():
        expected, actual = model(**inputs), run(**inputs)
    assert close(actual[0], expected[0])


# One row after another takes the next word of every axis, until each has had its turn.
COVERING = [
    Case(*words)
    for words, _ in zip(
        zip(*(itertools.cycle(axis) for axis in (FAMILIES, POSITIONS, PATTERNS[:3], ORDERS)), strict=False),
        POSITIONS,
        strict=False,
    )
]


@pytest.mark.parametrize("case", sampled(COVERING, 5), ids=str)
@torch.no_grad()
def test_one_graph(case: Case) -> None:
    compiled(case, "eager", num_hidden_layers=1)


@pytest.mark.slow
@every()
@torch.no_grad()
def test_one_graph_for_every_combination(case: Case) -> None:
    compiled(case, "aot_eager")


def exported(case: Case, **fields: Any) -> None:
    """A graph that needs no Python gives the same numbers, for more rows and shorter ones as well."""
    model, inputs = build(case, **fields), inputs_of(case)
    constant = {} if case.family in ("encoder", "vision") else {"use_cache": False}
    sizes = (0,) if case.family == "vision" else (0, 1)
    free = {name: dict.fromkeys(sizes, torch.export.Dim.AUTO) for name in inputs} | dict.fromkeys(constant)
    other = {name: torch.cat((value, value[:1])) for name, value in inputs.items()}
    if case.family != "vision":
        other = {name: value[:, :-2] for name, value in other.items()}
    with exact():
        program = torch.export.export(model, (), {**inputs, **constant}, dynamic_shapes=free).module()
        for given in (inputs, other):
            assert close(program(**given, **constant)[0], model(**given, **constant)[0])


# The last of them are one of each family, and the positions that the first of each family leave.
@pytest.mark.parametrize("case", sampled(COVERING[-len(FAMILIES) :], 5), ids=str)
@torch.no_grad()
def test_export(case: Case) -> None:
    exported(case, num_hidden_layers=1)


@pytest.mark.slow
@every()
@torch.no_grad()
def test_export_of_every_combination(case: Case) -> None:
    exported(case)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_training_through_inductor(family: str) -> None:
    """`torch.compile(model)`, then a step; needs a C++ compiler, as torch does here."""
    torch._dynamo.reset()
    case = Case(family, "t5", "mixed", "pre-norm")
    plain, model = (copy.deepcopy(model_of(case)).float().train() for _ in range(2))
    run = torch.compile(model, fullgraph=True)
    batch = padded(case)[0] if family != "vision" else {"pixel_values": inputs_of(case)["pixel_values"].float()}
    outputs = [each(**batch)[0] for each in (plain, run)]
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
    model, batch = with_backend(model_of(case), "flex_attention").float(), padded(case)
    expected = copy.deepcopy(model_of(case)).float()(**batch[0]).logits
    assert (model(**batch[0]).logits - expected)[batch[1]].abs().max() <= 1e-5


@pytest.mark.gpu
@every()
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


def patterns_of(case: Case) -> set[str]:
    return set(get_args(PatternName)) if case.pattern == "mixed" else {case.pattern}


def ignored_by_flash(case: Case) -> str | None:
    """The field that flash attention would ignore, with its word."""
    if case.position in BIAS_POSITIONS:
        return f"position={case.position!r}"
    masked = [word for word in get_args(PatternName) if word in patterns_of(case) and word not in MASKLESS_PATTERNS]
    return f"pattern={masked[0]!r}" if masked else None


@pytest.mark.parametrize("backend", ["flash_attention_2", "paged|sdpa"])
@pytest.mark.parametrize("case", sampled([case for case in product() if ignored_by_flash(case)], 5), ids=str)
def test_backends_that_would_ignore_a_part_are_refused(
    case: Case, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(case)
    for stack in stacks(model):
        # Where the backend is installed `from_pretrained` writes this.
        monkeypatch.setattr(stack.config, "_attn_implementation_internal", backend)
    with raises_sentence(f"attn_implementation={backend!r}", str(ignored_by_flash(case))):
        model(**inputs_of(case))


def refusals(case: Case) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return fields that cannot be combined with this case, by what the error must mention."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    if case.position in ROTARY_POSITIONS:
        found["head_dim=3",] = {"head_dim": 3}
        found["rope_type='other'",] = {"rope_parameters": {"rope_type": "other", "rope_theta": 10.0}}
    else:
        found["rope_parameters", "position='rope'"] = {"rope_parameters": {"rope_type": "default", "rope_theta": 10.0}}
    if case.position.startswith("sinusoidal"):
        found["hidden_size=13",] = {"hidden_size": 13, "num_attention_heads": 1, "num_key_value_heads": 1}
    if "sliding" in patterns_of(case):
        found["sliding_window", "None"] = {"sliding_window": None}
    if case.pattern == "mixed":
        found["pattern", "6", "num_hidden_layers=4"] = {"num_hidden_layers": 4}
    return found


REFUSED = [(case, mentions, fields) for case in product() for mentions, fields in refusals(case).items()]


@pytest.mark.parametrize(
    ("case", "mentions", "fields"), sampled(REFUSED, 5), ids=lambda given: str(given) if given else ""
)
def test_combinations_that_cannot_be_are_refused(case: Case, mentions: tuple[str, ...], fields: dict[str, Any]) -> None:
    with raises_sentence(*mentions):
        config_of(case, **fields)
    config_of(case)
