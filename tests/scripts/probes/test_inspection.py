"""The probes of each family are those of slow loops over its eager attention; induction is that of the paper."""

import math
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor

import qkv
import reference
import tiny
from errors import raises_sentence
from families.attentions import FAMILIES, built, eager
from families.attentions import real_queries as expected_real
from qkv.scripts.probes import inspection
from qkv.scripts.probes.induction import LENGTH, repeated_tokens
from qkv.scripts.probes.inspection import real_queries
from qkv.scripts.probes.table import PROBES
from tiny import jitter

CLOSE = 1e-5
HEADS = {"entropy", "distance", "first_token"}


def by_head(table: Any, probe: str, stack: str) -> dict[tuple[int, int], float]:
    return {(row["layer"], row["head"]): row["value"] for row in table.select(probe, stack)}


def expected_heads(weights: Tensor, real: Tensor, places: Any, prefix: int, *, cross: bool) -> dict[str, Tensor]:
    """Entropy, distance and attention to the first token of each head, query by query: (B, H, T, S) -> (H,)."""
    values: dict[str, list[list[Tensor]]] = {name: [[] for _ in weights[0]] for name in HEADS}
    for row, rows in enumerate(weights.double()):
        marks = real.expand(len(weights), 1, weights.shape[2], 1)[row, 0, :, 0].bool().tolist()
        queries = [place for place, own in enumerate(marks) if own]
        first = next(key for key in range(weights.shape[3]) if cross and rows[:, :, key].max() > 0 or key in queries)
        for head, own in enumerate(rows):
            values["entropy"][head] += list(reference.attention_entropy(own[queries]))
            values["first_token"][head] += [own[place, first] for place in queries if cross or place > first]
            if places is not None:
                means = reference.attention_distance(own[prefix:, prefix:], places)
                values["distance"][head] += [means[place - prefix] for place in queries if place >= prefix]
    return {name: torch.stack([sum(own) / len(own) for own in each]) for name, each in values.items() if each[0]}


def places_of(name: str, stack: str, weights: Tensor) -> tuple[Any, int]:
    """Where the tokens of a stack are, and how many tokens in front are nowhere."""
    tokens = weights.shape[-1]
    if stack == "cross" or "detr" in name and stack == "decoder":
        return None, 0
    if "detr" in name:
        return [(0.0, float(column)) for column in range(tokens)], 0
    if stack == "image" or "vit" in name:
        columns = 4  # of images of 12 x 16 or 16 x 16 pixels
        return [(row, column) for row in range((tokens - 1) // columns) for column in range(columns)], 1
    return [(place,) for place in range(tokens)], 0


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.costly(12)
def test_heads_of_every_family(name: str) -> None:
    model, batch, names = built(name)
    table = qkv.inspect(model, batch)
    for stack, layers in eager(model, batch, names).items():
        rows = {probe: by_head(table, probe, stack) for probe in HEADS if probe in probes_of(table, stack)}
        assert ("entropy" in rows) == all((weights >= 0).all() for weights in layers)
        for number, weights in enumerate(layers):
            real = expected_real(stack, batch, weights)
            if "pixel_mask" in batch and stack == "encoder":
                real = (weights.amax((1, 2)) > 0)[:, None, :, None]
            expected = expected_heads(weights, real, *places_of(name, stack, weights), cross=stack == "cross")
            expected = expected if "entropy" in rows else {"first_token": expected["first_token"]}
            assert expected.keys() == rows.keys()
            for probe, values in expected.items():
                own, *other = (
                    torch.tensor([rows[probe][layer, head] for head in range(len(values))]).double()
                    for layer in (number, 1 - number)[: len(layers)]
                )
                torch.testing.assert_close(own, values, rtol=CLOSE, atol=CLOSE)
                # Nor is it that of another head or of another layer.
                others = [values.roll(1), *other] if len(values) > 1 else other
                assert all((own - each).abs().max() > 10 * CLOSE for each in others)


def probes_of(table: Any, stack: str) -> set[str]:
    return {row["probe"] for row in table.rows if row["stack"] == stack}


PROBED = [*tiny.HEADS, *(case for case in tiny.VARIANTS if "recycled" in case.name)]


@pytest.mark.parametrize("case", PROBED, ids=lambda case: case.name)
@pytest.mark.costly(12)
def test_every_head_is_probed_and_the_model_stays(case: Any) -> None:
    model, inputs = case.build(), case.inputs()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        model.eval()(**inputs)  # transformers adds hooks of its own in the first forward
    hooks = [len(module._forward_hooks) for module in model.modules()]
    table = qkv.inspect(model.train(), inputs)
    assert qkv.inspect(model, inputs).rows == table.rows, "dropout is off"
    assert len({(row["probe"], row["stack"], row["layer"], row["head"]) for row in table.rows}) == len(table.rows)
    assert hooks == [len(module._forward_hooks) for module in model.modules()]
    assert all(module.training for module in model.modules())
    assert {"entropy", "first_token"} | (HEADS if "Recurrent" not in case.name else set()) <= {
        row["probe"] for row in table.rows
    }
    assert all(math.isfinite(row["value"]) and set(row) == set(table.rows[0]) for row in table.rows)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_queries_of_a_decoder_are_real_by_its_mask_or_the_labels() -> None:
    torch.manual_seed(0)
    model: Any = jitter(qkv.QkvEncoderDecoderForConditionalGeneration(tiny.encoder_decoder())).eval()
    pairs, labels = tiny.pairs(), tiny.translations()
    bare = {"input_ids": pairs["input_ids"], "decoder_input_ids": pairs["decoder_input_ids"]}
    ones = torch.ones_like(pairs["decoder_input_ids"], dtype=torch.bool)
    cases = ((pairs, pairs["decoder_attention_mask"].bool()), (labels, labels["labels"] != -100), (bare, ones))
    assert all(mask.all() == (inputs is bare) for inputs, mask in cases)
    for inputs, mask in cases:
        with torch.no_grad(), qkv.capture_attention(model, inputs, layers={"decoder": None, "cross": None}) as captured:
            pass
        assert all(torch.equal(real_queries(model, record, inputs), mask) for record in captured)


@torch.no_grad()
def test_padded_sequences_of_an_alignment_are_not_real() -> None:
    model, inputs = qkv.QkvPairModel(tiny.pair("evoformer", chunk_size=4)).eval(), tiny.alignment()
    with qkv.capture_attention(model, inputs) as captured:
        pass
    sequences = torch.cat((torch.ones(tiny.BATCH, 1), inputs["msa_attention_mask"]), dim=1)
    expected = (sequences[..., None] * inputs["attention_mask"][:, None]).flatten(0, 1).bool()
    assert not sequences.all()
    assert all(torch.equal(real_queries(model, record, inputs), expected) for record in captured)


def test_padding_does_not_count() -> None:
    torch.manual_seed(0)
    model = jitter(qkv.QkvDecoderForCausalLM(tiny.decoder("llama"))).eval()
    text = tiny.text(batch=1)["input_ids"]
    padding = torch.full((1, 5), tiny.PAD)
    mask = torch.ones_like(text), torch.zeros_like(padding)
    plain = qkv.inspect(model, {"input_ids": text})
    right = qkv.inspect(model, {"input_ids": torch.cat((text, padding), 1), "attention_mask": torch.cat(mask, 1)})
    left = qkv.inspect(model, {"input_ids": torch.cat((padding, text), 1), "attention_mask": torch.cat(mask[::-1], 1)})
    for row in plain.rows:
        for other in (right, left):
            (same,) = [each for each in other.rows if all(each[k] == row[k] for k in row if k != "value")]
            assert same["value"] == pytest.approx(row["value"], rel=1e-4, abs=1e-5)


def test_one_token_has_no_later_ones() -> None:
    table = qkv.inspect(qkv.QkvDecoderModel(tiny.decoder()), {"input_ids": torch.tensor([[5]])})
    assert "first_token" not in {row["probe"] for row in table.rows} and all(
        math.isfinite(row["value"]) for row in table.rows
    )


def test_layers_without_weights_have_no_probes() -> None:
    assert qkv.inspect(qkv.QkvDecoderForCausalLM(tiny.decoder("deltanet")), tiny.causal_labels()).rows == []


def test_the_table_is_selected_and_drawn() -> None:
    table = qkv.inspect(qkv.QkvDecoderForCausalLM(tiny.decoder()), tiny.causal_labels())
    assert {row["stack"] for row in table.select("entropy")} == {"decoder"}
    with raises_sentence("probe='entropy'", "'encoder'", "decoder"):
        table.select("entropy", "encoder")
    panels = {axis.get_title() for axis in table.figure().axes if axis.get_title()}
    assert len(panels) == len({row["probe"] for row in table.rows}) == len(PROBES)
    pairs = qkv.inspect(qkv.QkvEncoderDecoderForConditionalGeneration(tiny.encoder_decoder()), tiny.pairs())
    maps = [axis for drawn in (table, pairs) for axis in drawn.figure().axes if axis.get_title()]
    ends = {axis.images[0].get_clim()[1] for axis in maps[len(PROBES) :] if axis.get_title().startswith("entropy")}
    assert ends == {max(row["value"] for row in pairs.select("entropy"))}, "one scale for all stacks"
    assert all(axis.yaxis_inverted() and axis.images[0].colorbar.ax.get_ylabel() for axis in maps), "layer 0 on top"


def test_weights_of_one_layer_are_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    statistics = inspection.head_statistics

    def seen(record: Any, *given: Any) -> Any:
        assert all(each() is None for each in kept)
        kept.append(weakref.ref(record.weights))
        return statistics(record, *given)

    monkeypatch.setattr(inspection, "head_statistics", seen)
    qkv.inspect(qkv.QkvEncoderModel(tiny.encoder(num_hidden_layers=5)), tiny.text())
    assert len(kept) == 5


# Induction ------------------------------------------------------------------------------------------------------------


CAUSAL = ["qkv gpt2", "qkv mistral", "qkv bloom", "qkv linear", "stock llama", "stock gpt-oss"]


@pytest.mark.parametrize("name", CAUSAL)
def test_every_head_of_every_family(name: str) -> None:
    model, _, names = built(name)
    tokens = repeated_tokens(model, 5, 2, seed=3)
    assert all(len(set(row.tolist())) == 5 for row in tokens)
    score = qkv.induction_score(model, length=5, sequences=2, seed=3)
    layers = eager(model, {"input_ids": tokens, "use_cache": False}, names)["decoder"]
    assert score.shape == (len(layers), layers[0].shape[1])
    for own, weights in zip(score, layers, strict=True):
        for head, value in enumerate(own):
            rows = zip(weights.double(), tokens.tolist(), strict=True)
            expected = sum(reference.prefix_matching(heads[head], row) for heads, row in rows) / 2
            assert value.item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-6)
    # Nor is it that of other heads or layers.
    shuffled = [score.roll(1, 1)] if "linear" not in name else []
    assert all((score - other).abs().max() > 1e-4 for other in [*shuffled, score.roll(1, 0)])


def test_random_tokens_are_repeated_and_not_special() -> None:
    model = qkv.QkvDecoderForCausalLM(tiny.decoder())
    tokens = repeated_tokens(model, 24, 50, seed=1)
    assert torch.equal(tokens[:, :24], tokens[:, 24:])
    assert not torch.isin(tokens, torch.tensor([tiny.PAD, tiny.START, tiny.END])).any() and 0 in tokens
    assert not torch.equal(tokens, repeated_tokens(model, 24, 50, seed=2))
    assert repeated_tokens(model).shape[1] == 48
    unlimited = qkv.QkvDecoderForCausalLM(tiny.decoder("llama", max_position_embeddings=400))
    assert repeated_tokens(unlimited).shape[1] == 2 * LENGTH


@pytest.mark.parametrize("length", [1, 25])
def test_a_length_that_does_not_fit_is_refused(length: int) -> None:
    with raises_sentence(f"length={length}", "48", "24"):
        qkv.induction_score(qkv.QkvDecoderForCausalLM(tiny.decoder()), length=length)


@pytest.mark.parametrize("name", ["qkv bert", "qkv t5", "stock clip"])
def test_models_without_induction_are_refused(name: str) -> None:
    model = built(name)[0]
    with raises_sentence(type(model).__name__, "QkvDecoderForCausalLM"):
        qkv.induction_score(model)
    with raises_sentence("QkvDecoderForCausalLM"):
        qkv.induction_score(qkv.QkvDecoderForCausalLM(tiny.decoder("deltanet")))
