"""Properties of models whose words are drawn from a seed: a stack of a family, its position, patterns, kernel and norms.

`QKV_CELLS_SEED` draws others, and slow tests draw more. That the numbers are those of slow loops is in `cells`, whose tiny
models these are: jittered, in double precision, with a batch of two rows of which the second is padded with random tokens.
"""

import copy
import itertools
import random
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, get_args

import pytest
import torch
import torch._inductor.codegen.cpp_utils  # its tables are keyed by torch.float32, which `exact` replaces
from cell_models import (
    KERNELS,
    LENGTHS,
    PATTERNS,
    POSITIONS,
    SEED,
    STACKS,
    VOCABULARY,
    Batch,
    Family,
    hidden_states,
    marks,
    module_of,
    real_tokens,
)
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel, StaticCache

import sampling
from comparison import EXACT, differentiable_flex, exact
from qkv.configuration.axes import (
    BIAS_POSITIONS,
    ROTARY_POSITIONS,
    TABLE_POSITIONS,
    BiasPositionName,
    NormPositionName,
    QueryKeyNormName,
)
from tiny import jitter

LENGTH = max(LENGTHS)
BACKENDS = ("eager", "sdpa", "flex_attention")
ONE_STACK = ("encoder", "decoder")
DECODERS = ("decoder", "encoder-decoder: decoder", "speech encoder-decoder: decoder")
# Cases of each test, and more that are slow.
COUNT, MORE = 6, 60


class Case(NamedTuple):
    stack: str
    position: str
    patterns: tuple[str, str]
    kernel: str
    norm_position: str
    query_key_norm: str

    def __str__(self) -> str:
        return "-".join("+".join(word) if isinstance(word, tuple) else str(word) for word in self)

    @property
    def family(self) -> Family:
        return STACKS[self.stack][0]

    def configure(self) -> Any:
        """The config; ValueError where it is refused."""
        words = {name: value for name, value in self._asdict().items() if name not in ("stack", "patterns")}
        return self.family.configure(STACKS[self.stack][1], {**words, "pattern": [*self.patterns]})


def draw(test: str, stacks: Any, positions: Any) -> Iterator[Case]:
    """Yield cases that a config takes."""
    generator = random.Random(f"{SEED} {test}")
    while True:
        pick = generator.choice
        patterns = pick([("full", "full"), (pick(PATTERNS), pick(PATTERNS))])
        norms = (pick(get_args(NormPositionName)), pick(["none", pick(get_args(QueryKeyNormName))]))
        case = Case(pick(stacks), pick(positions), patterns, pick(KERNELS), *norms)
        try:
            case.configure()
        except ValueError:
            continue
        yield case


def drawn(*stacks: str, positions: Any = POSITIONS, count: int = COUNT) -> Any:
    """Run a test over cases that are drawn from its name."""

    def decorate(test: Any) -> Any:
        cases = draw(test.__name__, stacks or [*STACKS], positions)
        params = [*itertools.islice(cases, count)]
        if sampling.collect_slow:
            params += [pytest.param(case, marks=pytest.mark.slow) for case in itertools.islice(cases, MORE)]
        return pytest.mark.parametrize("case", params, ids=str)(test)

    return decorate


@cache
def model_of(case: Case) -> PreTrainedModel:
    """The model of a case; a test that changes it copies it first."""
    torch.manual_seed(0)
    return jitter(case.family.model_class(case.configure())).double().eval()


def with_backend(case: Case, backend: str) -> PreTrainedModel:
    model = copy.deepcopy(model_of(case))
    model.set_attn_implementation(backend)
    return model


def tokens(rows: int = 2, length: int = LENGTH, seed: int = 0) -> Tensor:
    return torch.randint(2, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def left(batch: Batch) -> Batch:
    """A batch with its padding in front of texts."""
    moved = dict(batch)
    for prefix in ("", "decoder_"):
        if f"{prefix}input_ids" in batch:
            for name in (f"{prefix}input_ids", f"{prefix}attention_mask"):
                rows = [row.roll(LENGTH - length) for row, length in zip(batch[name], LENGTHS, strict=True)]
                moved[name] = torch.stack(rows)
    return moved


def run(model: PreTrainedModel, **inputs: Any) -> Any:
    with exact():
        return model(**inputs)


def read(model: PreTrainedModel, **inputs: Any) -> Tensor:
    """One vector for each token: scores, or hidden states where there is no vocabulary."""
    outputs = run(model, **inputs)
    return outputs.logits if "logits" in outputs else outputs.last_hidden_state


def real_rows(case: Case, model: PreTrainedModel, batch: Batch) -> list[Tensor]:
    """The hidden states of every stack and row, without padding."""
    outputs = hidden_states(case.family, model, batch)
    return [real_tokens(part, batch, row, outputs[part.module]) for part in case.family.parts for row in range(2)]


def weigh(values: list[Tensor]) -> Tensor:
    """A number that depends on every value differently."""
    generator = torch.Generator().manual_seed(7)
    return sum((value * torch.randn(value.shape, generator=generator, dtype=value.dtype)).sum() for value in values)


def close(one: Tensor, other: Tensor) -> bool:
    assert one.shape == other.shape
    return bool((one - other).abs().max() <= EXACT)


def all_close(ones: Any, others: Any) -> bool:
    return all(itertools.starmap(close, zip(ones, others, strict=True)))


def gradients(model: PreTrainedModel) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


# Parameters that a softmax does not see in batches as short as these: (stack, pattern of names).
SILENT = [
    ("", r"k_(proj|norm|norm\.norm)\.bias$"),  # moves all scores of a query equally, unless rope turns it
    ("detection", r"decoder\.layers\.0\.self_attn(\.[qkv]_proj\.|_residual\.norm\.weight)"),  # queries start as zeros
]


@drawn()
def test_every_parameter_of_a_stack_learns(case: Case) -> None:
    model = copy.deepcopy(model_of(case)).train()
    weigh(real_rows(case, model, case.family.batch())).backward()
    for part in case.family.parts:
        for name, parameter in module_of(model, part).named_parameters(prefix=part.module):
            assert parameter.grad is not None and parameter.grad.isfinite().all(), name
            silent = any(case.stack.startswith(stack) and re.search(names, name) for stack, names in SILENT)
            assert silent or parameter.grad.abs().max() > 1e-9, f"{name} does not learn; if softmax hides it: SILENT"


@drawn(*(stack for stack in STACKS if STACKS[stack][0].parts[-1].given.endswith("input_ids")))
def test_padding_in_front_is_padding_behind(case: Case) -> None:
    """Nothing becomes NaN either, in padding and in gradients."""
    model, batch = copy.deepcopy(model_of(case)), case.family.batch()
    behind, front = (real_rows(case, model, each) for each in (batch, left(batch)))
    assert all_close(front, behind)
    weigh(front).backward()
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())


def shifted(case: Case, first: int) -> Tensor:
    return read(model_of(case), input_ids=tokens(), position_ids=torch.arange(first, first + LENGTH)[None])


RELATIVE = ("none", *ROTARY_POSITIONS, *(word for word in BIAS_POSITIONS if word not in TABLE_POSITIONS))


@drawn(*ONE_STACK, positions=RELATIVE)
@torch.no_grad()
def test_relative_positions_do_not_see_a_shift(case: Case) -> None:
    """A gain after the rotation scales components of their places, and sees it."""
    assert close(shifted(case, 0), shifted(case, 8)) == (case.query_key_norm != "head_after_rotation")
    assert close(shifted(case, 0), read(model_of(case), input_ids=tokens()))


@drawn(*ONE_STACK, positions=(*TABLE_POSITIONS, "sinusoidal", "sinusoidal_concat"))
@torch.no_grad()
def test_absolute_positions_see_a_shift(case: Case) -> None:
    assert not close(shifted(case, 0), shifted(case, 4))
    assert close(shifted(case, 0), read(model_of(case), input_ids=tokens()))


def make_cache(case: Case, kind: str) -> Any:
    config = model_of(case).config.get_text_config(decoder=True)
    caches = [
        DynamicCache(config=config) if kind == "dynamic" else StaticCache(config, max_cache_len=LENGTH + 2)
        for _ in range(len(case.family.parts))
    ]
    # As `generate` makes them: memory's cache from the decoder's config, windows and all.
    return EncoderDecoderCache(*caches) if len(caches) > 1 else caches[0]


def by_chunks(case: Case, batch: Batch, kind: str, given: str) -> Tensor:
    """The same rows in pieces, each reading what the cache holds of those before: how `generate` calls a model."""
    model, past = model_of(case), make_cache(case, kind)
    prefix = "decoder_" if "decoder_input_ids" in batch else ""
    mine = {key: value for key, value in batch.items() if key.startswith(prefix)}
    rest = {key: value for key, value in batch.items() if key not in mine}
    mask, outputs = mine.pop(f"{prefix}attention_mask"), []
    for first, last in itertools.pairwise((0, 6, 7, 8, LENGTH)):
        chunk: dict[str, Any] = {key: value[:, first:last] for key, value in mine.items()}
        chunk[f"{prefix}attention_mask"] = mask[:, :last]
        if given.startswith("prepared"):
            hidden = torch.zeros(2, last - first, 8, dtype=torch.float64)
            places = chunk.get(f"{prefix}position_ids")
            prepared = model.create_masks_for_generate(model.config, hidden, mask[:, :last], past, places)
            chunk[f"{prefix}attention_mask"] = prepared
        output = run(model, **rest, **chunk, past_key_values=past, use_cache=True)
        outputs.append(output.logits)
        if prefix:
            # From now on memory must come from the cache: the encoder's output is there only for its shape.
            memory = torch.full_like(output.encoder_last_hidden_state, torch.nan)
            rest = {"encoder_outputs": (memory,), "attention_mask": rest["attention_mask"]}
    return torch.cat(outputs, 1)


def check_cached(case: Case, kind: str, given: str) -> None:
    """Compare rows padded in front, in pieces and whole, where they are real."""
    batch = left(case.family.batch())
    prefix = "decoder_" if "decoder_input_ids" in batch else ""
    real = batch[f"{prefix}attention_mask"].bool()
    if not given.endswith("mask"):
        # As transformers numbers padding: 1.
        batch[f"{prefix}position_ids"] = (real.cumsum(-1) + 4).masked_fill(~real, 1)
    assert close(by_chunks(case, batch, kind, given)[real], read(model_of(case), **batch)[real])


CACHES = [("dynamic", "mask"), ("dynamic", "positions"), ("static", "mask"), ("static", "prepared positions")]


@pytest.mark.parametrize(("kind", "given"), CACHES)
@drawn(*DECODERS)
@torch.no_grad()
def test_cached_is_full(case: Case, kind: str, given: str) -> None:
    check_cached(case, kind, given)


@pytest.mark.parametrize("position", get_args(BiasPositionName))
@torch.no_grad()
def test_a_bias_follows_the_window_of_a_cache(position: str) -> None:
    """A cache with a window drops its first keys, and the bias those of the same positions."""
    check_cached(Case("decoder", position, ("sliding", "sliding"), "softmax", "before", "none"), "dynamic", "mask")


DOCUMENTS = (5, LENGTH - 5)
BOUNDARIES = torch.tensor([0, *itertools.accumulate(DOCUMENTS)], dtype=torch.int32)
RESTARTS = torch.cat([torch.arange(part) for part in DOCUMENTS])[None]
PACKING = {
    "positions": {"position_ids": RESTARTS},
    "positions and ones": {"position_ids": RESTARTS, "attention_mask": marks(LENGTH)},
    "boundaries": {"cu_seq_lens_q": BOUNDARIES},
}


@pytest.mark.costly(12)
@pytest.mark.parametrize("backend", BACKENDS)
@drawn(*ONE_STACK)
@torch.no_grad()
def test_packed_is_separate(case: Case, backend: str) -> None:
    """Documents in one row read as they do alone, and nothing at all leaks from one to the other."""
    row, other, model = tokens(1), tokens(1, seed=5), with_backend(case, backend)
    apart = torch.cat([read(model_of(case), input_ids=part) for part in row.split(DOCUMENTS, 1)], 1)
    first, second = slice(0, DOCUMENTS[0]), slice(DOCUMENTS[0], LENGTH)
    # Backends differ in what they make of a predicate, and it is the same for all ways of packing.
    with differentiable_flex():
        for name in PACKING if backend == "sdpa" else ["positions and ones"]:
            together = read(model, input_ids=row, **PACKING[name])
            assert close(together, apart), name
            for changed, kept in ((first, second), (second, first)):
                leaking = row.clone()
                leaking[:, changed] = other[:, changed]
                assert torch.equal(read(model, input_ids=leaking, **PACKING[name])[:, kept], together[:, kept]), name


@drawn("decoder")
@torch.no_grad()
def test_packed_loss_is_that_of_the_documents(case: Case) -> None:
    """No document's first token is the target of the one before it."""
    model, row = model_of(case), tokens(1)
    counts = [part - 1 for part in DOCUMENTS]
    losses = [run(model, input_ids=part, labels=part).loss for part in row.split(DOCUMENTS, 1)]
    expected = sum(loss * count for loss, count in zip(losses, counts, strict=True)) / sum(counts)
    for packing in PACKING.values():
        assert close(run(model, input_ids=row, labels=row, **packing).loss, expected)


@drawn()
def test_backends_agree(case: Case) -> None:
    """Hidden states and gradients of eager, sdpa and flex, on a padded batch."""
    batch, found = case.family.batch(), []
    with differentiable_flex():
        for backend in BACKENDS:
            model = with_backend(case, backend)
            assert {module_of(model, part).config._attn_implementation for part in case.family.parts} == {backend}
            hidden = real_rows(case, model, batch)
            weigh(hidden).backward()
            found.append([*hidden, *gradients(model).values()])
    assert all_close(found[1], found[0]) and all_close(found[2], found[0])


@drawn()
def test_checkpointing_changes_nothing(case: Case) -> None:
    """Hidden states and every gradient, also of a bias and a memory."""
    batch, found, runs = case.family.batch(), [], []
    for checkpointed in (False, True):
        model = copy.deepcopy(model_of(case)).train()
        if checkpointed:
            model.activation_checkpointing_enable({"use_reentrant": False})
            for part in case.family.parts:
                module_of(model, part).layers[0].self_attn.register_forward_pre_hook(lambda *_: runs.append(1))
        hidden = real_rows(case, model, batch)
        weigh(hidden).backward()
        found.append([*hidden, *gradients(model).values()])
    assert all_close(*found)
    # Each first layer ran twice: it was recomputed.
    assert len(runs) == 2 * len(case.family.parts)


# Graphs ------------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plain_paths")
@drawn(count=1)
@torch.no_grad()
def test_one_graph(case: Case) -> None:
    torch._dynamo.reset()
    model, batch = model_of(case), case.family.batch()
    graph = torch.compile(model, fullgraph=True, backend="eager")
    assert close(run(graph, **batch)[0], run(model, **batch)[0])


@drawn("encoder", "decoder", "image encoder", "encoder-decoder: decoder", count=1)
@torch.no_grad()
def test_export(case: Case) -> None:
    """A graph that needs no Python gives the same numbers, for more rows and shorter ones as well."""
    model = copy.deepcopy(model_of(case))
    inputs = {name: value for name, value in case.family.batch().items() if not name.endswith("mask")}
    constant = {"use_cache": False} if model.can_generate() else {}
    sizes = (0,) if "pixel_values" in inputs else (0, 1)
    free = {name: dict.fromkeys(sizes, torch.export.Dim.AUTO) for name in inputs} | dict.fromkeys(constant)
    more = {name: torch.cat((value, value[:1])) for name, value in inputs.items()}
    shorter = {name: value[:, :-2] if len(sizes) > 1 else value for name, value in more.items()}
    with exact():
        program = torch.export.export(model, (), {**inputs, **constant}, dynamic_shapes=free).module()
        for given in (inputs, shorter):
            assert close(program(**given, **constant)[0], model(**given, **constant)[0])


@pytest.mark.slow
@pytest.mark.usefixtures("plain_paths")
@pytest.mark.parametrize("stack", [*ONE_STACK, "image encoder", "encoder-decoder: decoder"])
def test_training_through_inductor(stack: str) -> None:
    """`torch.compile(model)`, then a step; needs a C++ compiler, as torch does here."""
    torch._dynamo.reset()
    case = Case(stack, "t5", ("full", "block_sparse"), "softmax", "before", "none")
    plain, model = (copy.deepcopy(model_of(case)).float().train() for _ in range(2))
    batch = {name: value.float() if value.is_floating_point() else value for name, value in case.family.batch().items()}
    outputs = [each(**batch)[0] for each in (plain, torch.compile(model, fullgraph=True))]
    for output in outputs:
        weigh([output]).backward()
    assert (outputs[0] - outputs[1]).abs().max() <= 1e-4
    for name, gradient in gradients(model).items():
        assert torch.allclose(gradient, gradients(plain)[name], rtol=1e-4, atol=1e-4), name
