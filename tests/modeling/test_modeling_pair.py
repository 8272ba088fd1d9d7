"""Models of pairs: what no order is, padding, alignments, recycling and chunks may change, and the losses of heads."""

import copy

import pytest
import torch
from torch.nn import functional as F

import tiny
from comparison import EXACT, assert_same, jittered
from comparison import pair as config_of
from errors import raises_sentence
from qkv import QkvPairForContactPrediction, QkvPairForDistancePrediction, QkvPairForMaskedLM, QkvPairModel
from qkv.scripts.planning.memory_tracker import MemoryTracker
from sampling import sampled

IDS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
MSA = torch.tensor([[[3, 1, 4, 2, 5, 9], [7, 1, 4, 1, 5, 0]], [[2, 6, 1, 3, 5, 8], [1, 1, 1, 1, 1, 1]]])
SEQUENCES = torch.tensor([[1, 1], [1, 0]])
EVERYTHING = {"column_attention": True, "num_recycles": 1, "num_distance_bins": 4}


def model_of(head=QkvPairModel, **fields):
    return jittered(head(config_of(**fields))).eval()


def bins(length=6):
    return torch.arange(2 * length * length).view(2, length, length) % 4


def close(actual, expected):
    assert (actual - expected).abs().max() <= EXACT * expected.abs().max().clamp(min=1)


@pytest.mark.parametrize("outer_product", ["mean", "difference"])
def test_without_positions_residues_have_no_order(outer_product):
    model, order = model_of(relative_position_bins=0, outer_product=outer_product), torch.tensor([3, 0, 5, 1, 4, 2])
    outputs, permuted = model(IDS), model(IDS[:, order])
    close(permuted.last_hidden_state, outputs.last_hidden_state[:, order])
    close(permuted.pair_hidden_state, outputs.pair_hidden_state[:, order][:, :, order])


def test_positions_act_by_their_differences():
    model = model_of()
    near, moved = model(IDS), model(IDS, position_ids=torch.arange(6)[None] + 100)
    assert torch.equal(near.pair_hidden_state, moved.pair_hidden_state)
    broken = model(IDS, position_ids=torch.tensor([[0, 1, 2, 50, 51, 52]]))
    assert (near.pair_hidden_state - broken.pair_hidden_state).abs().max() > 1e-3


@pytest.mark.parametrize("fields", [{}, {"outer_product": "difference"}, EVERYTHING], ids=["mean", "difference", "all"])
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_padding_changes_nothing(backend, fields):
    model = model_of(**fields, attn_implementation=backend)
    given = {"msa_ids": MSA, "msa_attention_mask": SEQUENCES, "distance_bins": bins()} if fields == EVERYTHING else {}
    outputs = model(IDS, MASK, **given)
    other = IDS.where(MASK.bool(), 7)
    again = model(other, MASK, **given)
    alone = {"msa_ids": MSA[1:, :1, :4], "distance_bins": bins()[1:, :4, :4]} if given else {}
    short = model(IDS[1:, :4], **alone)
    assert torch.equal(outputs.last_hidden_state[1, :4], again.last_hidden_state[1, :4])
    assert torch.equal(outputs.pair_hidden_state[1, :4, :4], again.pair_hidden_state[1, :4, :4])
    close(outputs.last_hidden_state[1:, :4], short.last_hidden_state)
    close(outputs.pair_hidden_state[1:, :4, :4], short.pair_hidden_state)


def test_alignments_have_a_first_row_and_no_order_below_it():
    model = model_of(**EVERYTHING)
    outputs, turned = model(IDS, msa_ids=MSA), model(IDS, msa_ids=MSA.flip(1))
    close(turned.pair_hidden_state, outputs.pair_hidden_state)
    close(turned.msa_hidden_state, outputs.msa_hidden_state.flip(1))
    changed = MSA.clone()
    changed[1, 1] = 4
    padded, again = (model(IDS, msa_ids=ids, msa_attention_mask=SEQUENCES) for ids in (MSA, changed))
    assert torch.equal(padded.pair_hidden_state, again.pair_hidden_state)
    assert not torch.equal(outputs.pair_hidden_state, padded.pair_hidden_state)


def test_recycling_feeds_the_normalised_result_of_the_last_pass():
    """Of an alignment it is fed to the chain: other sequences start anew."""
    model = model_of(column_attention=True, num_recycles=2, final_norm=False)
    rows = model.embed_tokens(torch.cat((IDS[:, None], MSA), dim=1))
    start = model.embed_pairs(rows[:, 0], torch.arange(6)[None], None, None)
    hidden, pair = torch.zeros_like(rows), torch.zeros_like(start)
    for recycles in range(3):
        hidden = torch.cat((rows[:, :1] + model.recycling.norm(hidden[:, :1]), rows[:, 1:]), dim=1)
        pair = start + model.recycling.pair_norm(pair)
        for block in model.blocks:
            hidden, pair, _ = block(hidden, pair, None, None, attention_implementation="eager")
        outputs = model(IDS, msa_ids=MSA, num_recycles=recycles)
        close(outputs.pair_hidden_state, pair)
        close(outputs.msa_hidden_state, hidden[:, 1:])


def test_returned_weights_of_a_chain_have_gradients():
    outputs = model_of(attn_implementation="eager")(IDS, output_attentions=True)
    for weights in outputs.attentions:
        weights.retain_grad()
    outputs.last_hidden_state.sin().sum().backward()
    assert all(weights.grad.abs().max() > 0 for weights in outputs.attentions)


def test_only_the_last_pass_has_gradients_and_passes_may_be_called_one_by_one():
    model = model_of(**EVERYTHING, final_norm=False)
    with torch.no_grad():
        once = model(IDS, MASK, msa_ids=MSA, num_recycles=0)
    recycled = once.last_hidden_state, once.pair_hidden_state
    parts = model(IDS, MASK, msa_ids=MSA, num_recycles=0, recycled=recycled)
    assert_same(model(IDS, MASK, msa_ids=MSA).pair_hidden_state, parts.pair_hidden_state, *model.blocks.parameters())


@pytest.mark.parametrize("training", [False, True])
def test_chunks_change_nothing(training):
    whole, parts = (model_of(**EVERYTHING, chunk_size=size) for size in (100, 2))
    parts.load_state_dict(whole.state_dict())
    parts.train(training)
    if training:
        parts.gradient_checkpointing_enable({"use_reentrant": False})
    outputs = [model(IDS, MASK, msa_ids=MSA, distance_bins=bins()) for model in (whole, parts)]
    for one, other in zip(*(output.to_tuple() for output in outputs), strict=True):
        close(other, one)
    upstream = torch.randn_like(outputs[0].pair_hidden_state)
    for output in outputs:
        (output.pair_hidden_state * upstream).sum().backward()
    for one, other in zip(whole.blocks.parameters(), parts.blocks.parameters(), strict=True):
        close(other.grad, one.grad)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.slow
def test_memory_of_chunks_grows_as_the_pairs(checkpointing):
    """Not by one of them for each three residues."""
    model, peaks = model_of(chunk_size=8).train(), []
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    for length in (64, 128):
        with MemoryTracker() as tracker:
            model(torch.randint(4, 10, (1, length))).pair_hidden_state.sum().backward()
        peaks.append(tracker.peak.total())
        model.zero_grad()
    assert peaks[1] < 4.15 * peaks[0]


def test_scores_of_pairs_are_symmetric_and_their_losses_are_those_of_labelled_pairs():
    model, labels = model_of(QkvPairForContactPrediction), torch.randint(0, 2, (2, 6, 6))
    labels[:, 0] = -100
    outputs = model(IDS, MASK, labels=labels)
    assert torch.equal(outputs.logits, outputs.logits.transpose(1, 2))
    due = (labels != -100) & (MASK[:, :, None] * MASK[:, None]).bool()
    close(outputs.loss, F.binary_cross_entropy_with_logits(outputs.logits[due], labels[due].double()))
    rows = [(IDS[[row]], MASK[[row]], labels[[row]]) for row in (0, 1)]
    parts = [model(ids, mask, labels=own, num_items_in_batch=due.sum()).loss for ids, mask, own in rows]
    close(sum(parts), outputs.loss)
    model = model_of(QkvPairForDistancePrediction, num_distogram_bins=5)
    labels = bins().masked_fill(torch.eye(6).bool(), -100)
    outputs = model(IDS, MASK, labels=labels)
    assert outputs.logits.shape == (2, 6, 6, 5) and torch.equal(outputs.logits, outputs.logits.transpose(1, 2))
    labels = labels.masked_fill(~(MASK[:, :, None] * MASK[:, None]).bool(), -100)
    close(outputs.loss, F.cross_entropy(outputs.logits.flatten(0, 2), labels.flatten(), ignore_index=-100))


def test_masked_residues_of_an_alignment_count_as_those_of_the_chain():
    model = model_of(QkvPairForMaskedLM, **EVERYTHING)
    labels = torch.cat((IDS.masked_fill(IDS > 4, -100)[:, None], MSA.masked_fill(MSA > 2, -100)), dim=1)
    outputs = model(IDS, msa_ids=MSA, labels=labels)
    further = model.lm_head(model.model(IDS, msa_ids=MSA).msa_hidden_state)
    scores = torch.cat((outputs.logits[:, None], further), dim=1)
    close(outputs.loss, F.cross_entropy(scores.flatten(0, 2), labels.flatten()))
    close(model(IDS, msa_ids=MSA, labels=labels[:, 0]).loss, F.cross_entropy(scores[:, 0].mT, labels[:, 0]))
    with raises_sentence("labels of shape (2, 3, 6)"):
        model(IDS, labels=labels)


def step_of(model, inputs):
    """The scores and all gradients of a step."""
    outputs = model(**inputs)
    outputs.loss.backward()
    gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    model.zero_grad()
    return outputs.logits.double(), gradients.double()


HEADS = [case for case in tiny.LOSSES if case.name.startswith("Pair")]


@pytest.mark.parametrize("case", sampled(HEADS, 2), ids=lambda case: case.name)
def test_a_step_in_bfloat16_is_that_in_single_precision(case):
    """Weights, states and their gradients are rounded: each may change as much as rounding the weights alone does."""
    model, inputs = case.build().double(), case.inputs()
    exact, rounded = step_of(model, inputs), step_of(copy.deepcopy(model).bfloat16().double(), inputs)
    low = step_of(copy.deepcopy(model).bfloat16(), inputs)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = step_of(copy.deepcopy(model).float(), inputs)
    for found in (low, mixed):
        for ours, once, precise in zip(found, rounded, exact, strict=True):
            assert 0 < (ours - precise).norm() <= 3 * (once - precise).norm() < 0.25 * precise.norm()


STATES = (torch.zeros(2, 1, 1), torch.zeros(2, 1, 1, 1))
WRONG = [
    ({"msa_ids": MSA}, {}, ("msa_ids", "column_attention=True")),
    ({"msa_ids": MSA[:, :, :3]}, EVERYTHING, ("msa_ids", "(2, 2, 3)")),
    ({"msa_ids": MSA, "msa_attention_mask": MASK}, EVERYTHING, ("msa_attention_mask", "(2, 6)")),
    ({"num_recycles": 2}, {}, ("num_recycles=2",)),
    ({"recycled": STATES}, {}, ("recycled", "num_recycles >= 1")),
    ({"recycled": STATES}, EVERYTHING, ("recycled", "final_norm=False")),
    ({"recycled": STATES}, {**EVERYTHING, "final_norm": False}, ("recycled", "(2, 1, 1)", "(2, 6, 8)")),
    ({"distance_bins": bins()}, {}, ("distance_bins", "num_distance_bins")),
    ({"distance_bins": bins(5)}, EVERYTHING, ("distance_bins", "(2, 5, 5)")),
    ({"distance_bins": bins() + 1}, EVERYTHING, ("distance_bins", "4")),
]


@pytest.mark.parametrize(("given", "fields", "named"), WRONG, ids=[" ".join(named) for *_, named in WRONG])
def test_wrong_inputs_are_refused(given, fields, named):
    with raises_sentence(*named):
        model_of(**fields)(IDS, **given)
