"""Generation beyond `qkv conform`, which compares caches, padding and second turns (`scripts/conformance/`)."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.generation.continuous_batching import PagedAttentionCache

import tiny
from errors import raises_sentence
from sampling import sampled
from speaking import DECODERS, RECURRENT, SCORED, TRANSLATORS, build

pytestmark = pytest.mark.upstream

EVERYONE = [*DECODERS, *TRANSLATORS, *RECURRENT]
each_second = pytest.mark.parametrize("kind", sampled(EVERYONE, 3))
NEW = 8
# Frequencies change in the middle of what is written.
SHORT = tiny.SOURCE + NEW // 2
LONGROPE = {"rope_type": "longrope", "original_max_position_embeddings": SHORT, "rope_theta": 50.0}
LONGROPE |= {"short_factor": [1.0, 1.0, 1.2, 1.3], "long_factor": [1.5, 3.0, 9.0, 20.0]}


def prompt(model: PreTrainedModel, *, batch: int = 3) -> dict[str, Tensor]:
    """Rows of different length, padded where a tokenizer pads: left before a continuation, right in a source."""
    inputs = tiny.text(batch=batch, length=tiny.SOURCE)
    if model.config.is_encoder_decoder:
        return inputs
    return moved(inputs, 1.0)


def moved(inputs: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """Rows padded on the right with this share of their padding on the left."""
    padding = [int(count * share) for count in (inputs["attention_mask"] == 0).sum(1)]
    return {
        name: torch.stack([row.roll(by) for row, by in zip(value, padding, strict=True)])
        for name, value in inputs.items()
    }


def generate(model: PreTrainedModel, inputs: dict[str, Tensor], **options: Any) -> Tensor:
    """The new tokens."""
    options = {"max_new_tokens": NEW, "do_sample": False, **options}
    tokens = model.generate(**inputs, **options)
    return tokens[:, 1:] if model.config.is_encoder_decoder else tokens[:, inputs["input_ids"].shape[1] :]


def forward(model: PreTrainedModel, **inputs: Any) -> Any:
    with torch.no_grad():
        return model(**inputs)


@pytest.mark.costly(5)
@each_second
def test_each_row_of_a_batch_is_written_as_if_alone_on_whichever_side_it_is_padded(kind: str) -> None:
    model = build(kind)
    right = tiny.text(batch=3, length=tiny.SOURCE)
    rows = [ids[mask.bool()][None] for ids, mask in zip(*right.values(), strict=True)]
    beams = {"num_beams": 3}
    for options, slow in (({}, {}), (beams, {**beams, "use_cache": False}), ({"cache_implementation": "static"}, {})):
        alone = torch.cat([generate(model, {"input_ids": row}, pad_token_id=tiny.PAD, **slow) for row in rows])
        for share in (0.0, 0.5):
            inputs = moved(right, share)
            assert torch.equal(generate(model, inputs, **options), alone)


@pytest.mark.costly(4)
@each_second
def test_sampling_is_reproducible_and_follows_its_options(kind: str) -> None:
    model = build(kind)
    inputs = prompt(model)
    options = {"do_sample": True, "temperature": 2.0, "top_k": 0}

    def sample(seed: int, **more: Any) -> Tensor:
        torch.manual_seed(seed)
        return generate(model, inputs, **{**options, **more})

    assert torch.equal(sample(1), sample(1)) and not torch.equal(sample(1), sample(2))
    assert torch.equal(sample(1), sample(1, cache_implementation="static"))
    assert torch.equal(sample(1, top_k=1), generate(model, inputs))
    assert torch.equal(sample(1, top_p=1e-6), generate(model, inputs))
    assert len(sample(3, num_return_sequences=3)) == 3 * len(inputs["input_ids"])


@each_second
def test_beams_score_what_they_say(kind: str) -> None:
    model = build(kind)
    inputs = prompt(model)
    options = {"num_beams": 4, "num_return_sequences": 2, "return_dict_in_generate": True, "output_scores": True}
    options |= {"max_new_tokens": NEW, "do_sample": False, "length_penalty": 0.0}
    best, static, plain = (
        model.generate(**inputs, **options, **way)
        for way in ({}, {"cache_implementation": "static"}, {"use_cache": False})
    )
    assert torch.equal(best.sequences, static.sequences) and torch.equal(best.sequences, plain.sequences)
    assert_close(best.sequences_scores, static.sequences_scores, rtol=1e-5, atol=1e-5)
    # The score of a beam is the log-likelihood of its tokens under a plain forward.
    new = best.sequences[:, 1:] if model.config.is_encoder_decoder else best.sequences[:, tiny.SOURCE :]
    likelihood = log_likelihood(model, {k: v.repeat_interleave(2, 0) for k, v in inputs.items()}, new)
    assert_close(best.sequences_scores, likelihood, rtol=1e-5, atol=1e-5)
    greedy = log_likelihood(model, inputs, generate(model, inputs))
    assert (best.sequences_scores[::2] >= greedy - 1e-5).all()


def log_likelihood(model: PreTrainedModel, inputs: dict[str, Tensor], new: Tensor) -> Tensor:
    """Of each row's new tokens after its inputs, from one forward: (B,)."""
    if model.config.is_encoder_decoder:
        start = torch.full((len(new), 1), tiny.START)
        logits = forward(model, **inputs, decoder_input_ids=torch.cat((start, new[:, :-1]), dim=1)).logits
    else:
        mask = torch.cat((inputs["attention_mask"], torch.ones_like(new)), dim=1)
        logits = forward(model, input_ids=torch.cat((inputs["input_ids"], new), dim=1), attention_mask=mask).logits
        logits = logits[:, -new.shape[1] - 1 : -1]
    return logits.log_softmax(-1).gather(2, new[..., None]).sum((1, 2))


@each_second
def test_assistants_change_the_speed_not_the_words(kind: str) -> None:
    model = build(kind)
    alone = {name: value[:1] for name, value in prompt(model).items()}
    expected = generate(model, alone)
    assistant = build("llama") if kind in ("mistral", "dalle") else build(kind, num_hidden_layers=1)
    ways: list[dict[str, Any]] = [{"assistant_model": assistant}, {"assistant_model": model}]
    ways += [] if model.config.is_encoder_decoder else [{"prompt_lookup_num_tokens": 2}]
    # The first layer of a model may assist it.
    ways += [{"assistant_early_exit": 1}, {}] if kind in ("gpt2", "llama", "bloom") else []
    state = kind in RECURRENT or model.config.get_text_config(decoder=True).kernel != "softmax"
    for way in ways:
        with pytest.raises(ValueError, match="crop") if state and way else nullcontext():
            assert torch.equal(generate(model, alone, **way), expected), way


@pytest.mark.parametrize("kind", sampled(SCORED, 3))
def test_generation_shows_its_attention_under_sdpa(kind: str) -> None:
    model = build(kind)
    inputs, outputs = prompt(model), []
    for implementation in ("eager", "sdpa"):
        model.set_attn_implementation(implementation)
        options = {"max_new_tokens": 3, "return_dict_in_generate": True, "output_attentions": True}
        outputs.append(model.generate(**inputs, **options))
    eager, sdpa = outputs
    assert torch.equal(sdpa.sequences, eager.sequences)
    names = [name for name in sdpa if name.endswith("attentions")]
    assert len(names) == (3 if model.config.is_encoder_decoder else 1)
    for name in names:
        for step, reference in zip(sdpa[name], eager[name], strict=True):
            for weights, right in zip(as_tuple(step), as_tuple(reference), strict=True):
                assert_close(weights, right)
                assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    # Attention may be asked for at one step and not change the next.
    assert torch.equal(generate(model, inputs, max_new_tokens=3), sdpa.sequences[:, -3:])


@pytest.mark.parametrize("kind", ["linear", "linear_marian"])
def test_generation_shows_the_attention_of_sums_without_a_cache(kind: str) -> None:
    model = build(kind)
    inputs, options = prompt(model), {"output_attentions": True, "return_dict_in_generate": True, "max_new_tokens": 3}
    with raises_sentence("output_attentions=True", "use_cache=False"):
        model.generate(**inputs, **options)
    shown = model.generate(**inputs, **options, use_cache=False)
    assert torch.equal(shown.sequences[:, -3:], generate(model, inputs, max_new_tokens=3))
    steps = shown.decoder_attentions if model.config.is_encoder_decoder else shown.attentions
    assert len(steps) == 3 and steps[-1][0].shape[-1] == steps[0][0].shape[-1] + 2


def as_tuple(value: Any) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("kind", DECODERS)
def test_only_the_asked_logits_are_computed(kind: str) -> None:
    model = build(kind)
    inputs = prompt(model)
    whole = forward(model, **inputs).logits
    assert_close(forward(model, **inputs, logits_to_keep=1).logits, whole[:, -1:])
    assert_close(forward(model, **inputs, logits_to_keep=torch.tensor([0, 3])).logits, whole[:, [0, 3]])


PAGED: list[tuple[str, dict[str, Any], str]] = [
    *(("gpt2", {}, "sdpa"), ("llama", {}, "eager"), ("mistral", {}, "sdpa")),
    *(("dalle", {"pattern": "full"}, "eager"), ("bloom", {"position": "sinusoidal"}, "sdpa")),
]


@pytest.mark.parametrize(("kind", "fields", "implementation"), sampled(PAGED, 3))
def test_continuous_batching_writes_what_generate_writes(kind: str, fields: dict, implementation: str) -> None:
    model = build(kind, **fields)
    model.set_attn_implementation(implementation)
    inputs = prompt(model, batch=4)
    rows = [ids[mask.bool()].tolist() for ids, mask in zip(*inputs.values(), strict=True)]
    expected = [generate(model, {"input_ids": torch.tensor([row])}, pad_token_id=tiny.PAD)[0].tolist() for row in rows]
    outputs = model.generate_batch(rows, generation_config=greedy(), continuous_batching_config=SMALL)
    assert [output.generated_tokens for output in outputs.values()] == expected
    assert torch.equal(generate(model, inputs), torch.tensor(expected))  # and leaves the model as it was


SMALL = ContinuousBatchingConfig(num_blocks=8, page_size=16, max_batch_tokens=24)


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}, {"prefill_chunk_size": 3}], ids=str)
def test_a_text_that_passes_the_length_of_longrope_is_read_again(options: dict) -> None:
    model = build("gpt2", position="rope", rope_parameters=LONGROPE)
    inputs = prompt(model)
    plain = generate(model, inputs, use_cache=False, **{**options, "prefill_chunk_size": None})
    assert torch.equal(generate(model, inputs, **options), plain)


def test_ids_of_a_text_that_passes_the_length_of_longrope_are_needed() -> None:
    model = build("gpt2", position="rope", rope_parameters=LONGROPE)
    with raises_sentence(f"original_max_position_embeddings={SHORT}", "input_ids", "inputs_embeds"):
        model.generate(inputs_embeds=torch.randn(1, SHORT - 1, model.config.hidden_size), max_new_tokens=NEW)


def greedy() -> GenerationConfig:
    return GenerationConfig(max_new_tokens=NEW, do_sample=False, eos_token_id=-1, pad_token_id=tiny.PAD)


@pytest.mark.parametrize("implementation", ["sdpa", "paged|eager"])
@pytest.mark.parametrize(
    ("fields", "lost"),
    [
        ({"position": "alibi"}, "position='alibi'"),
        ({"position": "t5"}, "position='t5'"),
        ({"pattern": ["full", "block_sparse"]}, "pattern='block_sparse'"),
        ({"position": "rope", "rope_parameters": LONGROPE}, "rope_type='longrope'"),
        ({"kernel": "linear", "attention_dropout": 0.0}, "kernel='linear'"),
        ({"kernel": "gated_delta", "attention_dropout": 0.0}, "kernel='gated_delta'"),
    ],
)
def test_continuous_batching_refuses_what_it_would_lose(fields: dict, lost: str, implementation: str) -> None:
    model = build("gpt2", **fields)
    model.set_attn_implementation(implementation)
    with raises_sentence("continuous batching", lost, "generate"):
        model.generate_batch([[5, 6, 7]], generation_config=greedy(), continuous_batching_config=SMALL)
    # Whoever drives the paged cache by hand is told the same.
    positions, paged = torch.arange(3)[None], object.__new__(PagedAttentionCache)
    with raises_sentence("continuous batching", lost, "generate"):
        forward(model, input_ids=torch.tensor([[5, 6, 7]]), position_ids=positions, cache=paged, use_cache=False)
