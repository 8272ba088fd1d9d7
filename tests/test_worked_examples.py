"""Do the founding documents' worked examples come out, with the numbers that are right?

Each mechanism is computed by every row of its table, so an implementation is checked by adding a row. Where a document
prints another number, the test says which, and that it is not what the formula gives.
"""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import reference


def numbers(rows):
    return torch.tensor(rows, dtype=torch.float64)


def assert_prints(actual, expected, decimals):
    """Equal within half a unit of the last printed decimal."""
    assert actual.shape == expected.shape
    assert (actual - expected).abs().max() <= 0.5000001 * 10.0**-decimals


def assert_misprint(actual, printed, decimals):
    """What the document prints, with so many decimals, is not the value rounded."""
    assert (actual - numbers(printed)).abs().max() > 0.51 * 10.0**-decimals


def torch_attention(q, k, v, scale):
    scores = q @ k.transpose(-1, -2) * scale
    return F.scaled_dot_product_attention(q, k, v, scale=scale), scores.softmax(-1)


def torch_sinusoids(length, dim):
    exponents = torch.arange(0, dim, 2, dtype=torch.float64) / dim
    angles = torch.arange(length, dtype=torch.float64)[:, None] / 10000.0**exponents
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def torch_patches(image, patch):
    return F.unfold(image[None], patch, stride=patch)[0].T


def torch_rates(steps, hidden_size, warmup_steps):
    """The rate as an optimizer sees it: `LambdaLR` on a base rate of 1, after 1, 2, ... steps."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scale = hidden_size**-0.5
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: scale * min((done + 1) ** -0.5, (done + 1) * warmup_steps**-1.5)
    )
    rates = []
    for _ in range(steps):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return rates


# (q (B, H, T, K), k, v, scale) -> output, weights
ATTENTIONS = {"torch": torch_attention, "reference": reference.attention}
# (scores (N,), temperature) -> probabilities
SOFTMAXES = {"torch": lambda scores, temperature: (scores / temperature).softmax(-1), "reference": reference.softmax}
# (x (B, T, D), weight (out, in)) -> (B, T, out)
PROJECTIONS = {"torch": F.linear, "reference": reference.linear}
# (length, dim) -> (length, dim)
SINUSOIDS = {"torch": torch_sinusoids, "reference": reference.sinusoidal_table}
# (image (C, H, W), patch) -> (N, C * patch * patch)
PATCHES = {"torch": torch_patches, "reference": reference.patches}
# (steps, hidden_size, warmup_steps) -> rates of steps 1, 2, ...
RATES = {
    "torch": torch_rates,
    "reference": lambda steps, size, warmup: [reference.noam_rate(step, size, warmup) for step in range(1, steps + 1)],
}

H = [[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8], [0.9, 1.0, 1.1, 1.2]]
QUERY = [0.2, 0.4, 0.6, 0.8]


@pytest.mark.parametrize("attention", ATTENTIONS.values(), ids=ATTENTIONS)
def test_dot_product_attention(attention):
    """Document 000, §2.3: one query over three encoder states, not scaled."""
    q, states = numbers([[[QUERY]]]), numbers([[H]])
    assert_prints(states[0, 0] @ q[0, 0, 0], numbers([0.6, 1.4, 2.2]), 12)
    context, weights = attention(q, states, states, 1.0)
    assert_prints(weights[0, 0, 0], numbers([0.122271, 0.272118, 0.605611]), 6)
    assert_prints(context[0, 0, 0], numbers([0.693336, 0.793336, 0.893336, 0.993336]), 6)
    # The document rounds its weights first, and so arrives at 0.894 and 0.994.
    assert_misprint(context[0, 0, 0], [0.693, 0.793, 0.894, 0.994], 3)


@pytest.mark.parametrize("attention", ATTENTIONS.values(), ids=ATTENTIONS)
def test_scaled_dot_product_attention(attention):
    """Document 000, §2.3 with the scaling of Vaswani et al. 2017, 1/√4."""
    q, states = numbers([[[QUERY]]]), numbers([[H]])
    context, weights = attention(q, states, states, 1 / math.sqrt(4))
    assert_prints(weights[0, 0, 0], numbers([0.211983, 0.316241, 0.471776]), 6)
    assert_prints(context[0, 0, 0], numbers([0.603917, 0.703917, 0.803917, 0.903917]), 6)


def test_scale_of_the_base_model():
    """All documents: d_k = 64 divides the scores by 8."""
    q, k, v = (torch.randn(1, 1, 3, 64, dtype=torch.float64) for _ in range(3))
    by_eight = torch_attention(q, k, v, 1 / 8)
    assert torch.allclose(reference.attention(q, k, v)[0], by_eight[0], rtol=0, atol=1e-12)
    assert torch.allclose(F.scaled_dot_product_attention(q, k, v), by_eight[0], rtol=0, atol=1e-12)


X = [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [9.0, 10.0, 11.0, 12.0]]
# name: (weight as printed, (in, out); right product; product as printed)
HEAD_PROJECTIONS = {
    "W1Q": (
        [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6], [0.7, 0.8]],
        [[5, 6], [11.4, 14], [17.8, 22]],
        [[5.0, 6.0], [11.4, 13.6], [17.8, 21.2]],
    ),
    "W1K": (
        [[0.2, 0.1], [0.4, 0.3], [0.6, 0.5], [0.8, 0.7]],
        [[6, 5], [14, 11.4], [22, 17.8]],
        [[5.0, 4.8], [11.4, 10.8], [17.8, 16.8]],
    ),
    "W1V": (
        [[0.3, 0.1], [0.1, 0.3], [0.4, 0.2], [0.2, 0.4]],
        [[2.5, 2.9], [6.5, 6.9], [10.5, 10.9]],
        [[2.7, 3.3], [6.7, 8.3], [10.7, 13.3]],
    ),
    "W2Q": (
        [[0.8, 0.7], [0.6, 0.5], [0.4, 0.3], [0.2, 0.1]],
        [[4, 3], [12, 9.4], [20, 15.8]],
        [[5.2, 4.6], [12.4, 10.6], [19.6, 16.6]],
    ),
    "W2K": (
        [[0.7, 0.8], [0.5, 0.6], [0.3, 0.4], [0.1, 0.2]],
        [[3, 4], [9.4, 12], [15.8, 20]],
        [[3.2, 4.2], [7.6, 9.8], [12.0, 15.4]],
    ),
    "W2V": (
        [[0.6, 0.5], [0.4, 0.3], [0.2, 0.1], [0.8, 0.7]],
        [[5.2, 4.2], [13.2, 10.6], [21.2, 17]],
        [[5.8, 4.6], [14.6, 11.8], [23.4, 19.0]],
    ),
}
OUTPUT_WEIGHT = [[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8], [0.9, 1.0, 1.1, 1.2], [1.3, 1.4, 1.5, 1.6]]


@pytest.mark.parametrize("project", PROJECTIONS.values(), ids=PROJECTIONS)
@pytest.mark.parametrize("name", HEAD_PROJECTIONS)
def test_head_projections(name, project):
    """Document 000, §3.2, step 1: every one of the six printed products has wrong entries."""
    weight, product, printed = HEAD_PROJECTIONS[name]
    actual = project(numbers([X]), numbers(weight).T)[0]
    assert_prints(actual, numbers(product), 12)
    assert_misprint(actual, printed, 1)


def test_two_heads_from_input_to_output():
    """Document 000, §3.2, steps 1 to 3 with its own matrices, which it does not carry through."""
    weights = {name: numbers(row[0]) for name, row in HEAD_PROJECTIONS.items()}
    q, k, v = (torch.cat((weights[f"W1{part}"], weights[f"W2{part}"]), dim=1).T for part in "QKV")
    output_weight = numbers(OUTPUT_WEIGHT).T
    output, probabilities = reference.multi_head_attention(
        numbers([X]), numbers([X]), q, None, k, None, v, None, output_weight, None, heads=2, kv_heads=2
    )
    module = nn.MultiheadAttention(4, 2, bias=False, batch_first=True, dtype=torch.float64)
    module.load_state_dict({"in_proj_weight": torch.cat((q, k, v)), "out_proj.weight": output_weight})
    expected, expected_probabilities = module(*[numbers([X])] * 3, average_attn_weights=False)
    assert torch.allclose(output, expected, rtol=0, atol=1e-12)
    assert torch.allclose(probabilities, expected_probabilities, rtol=0, atol=1e-12)
    # Scores of tens and hundreds leave one key with nearly all the weight, even scaled.
    assert probabilities.max(-1).values.min() > 0.999


@pytest.mark.parametrize("project", PROJECTIONS.values(), ids=PROJECTIONS)
def test_concatenated_heads_through_output_projection(project):
    """Document 000, §3.2, step 3: Concat(head_1, head_2) W^O for the supposed heads, left to the reader."""
    first, second = numbers([[1.1, 1.2], [2.1, 2.2], [3.1, 3.2]]), numbers([[0.5, 0.6], [1.5, 1.6], [2.5, 2.6]])
    concatenated = reference.merge_heads(torch.stack((first, second))[None])
    assert concatenated[0].tolist() == [[1.1, 1.2, 0.5, 0.6], [2.1, 2.2, 1.5, 1.6], [3.1, 3.2, 2.5, 2.6]]
    expected = [[1.94, 2.28, 2.62, 2.96], [4.74, 5.48, 6.22, 6.96], [7.54, 8.68, 9.82, 10.96]]
    assert_prints(project(concatenated, numbers(OUTPUT_WEIGHT).T)[0], numbers(expected), 12)


@pytest.mark.parametrize("sinusoids", SINUSOIDS.values(), ids=SINUSOIDS)
def test_sinusoidal_positions(sinusoids):
    """Document 000, §3.3, d = 4."""
    table = sinusoids(3, 4)
    assert table[0].tolist() == [0, 1, 0, 1]
    assert_prints(table[1, :3], numbers([0.8415, 0.5403, 0.0100]), 4)
    assert_prints(table[1, 3:], numbers([0.99995]), 5)
    assert_prints(table[2, :3], numbers([0.909, -0.416, 0.020]), 3)
    assert_prints(table[2, 3:], numbers([0.9998]), 4)
    # cos(0.01) is 0.99995: the document's 0.999 is cut, not rounded.
    assert_misprint(table[1, 3:], [0.999], 3)


@pytest.mark.parametrize("sinusoids", SINUSOIDS.values(), ids=SINUSOIDS)
def test_sinusoidal_exponent(sinusoids):
    """Document 003, §2.1: sin and cos of a pair share one exponent, 2 (i // 2) / d for dimension i.

    Its code raises 10000 to 2 i / d and its second version to i / d, with i the dimension: both part the pairs.
    """
    table = sinusoids(2, 512)

    def column(exponent):
        return numbers([(math.cos if i % 2 else math.sin)(1 / 10000.0 ** exponent(i)) for i in range(512)])

    assert (table[1] - column(lambda i: 2 * (i // 2) / 512)).abs().max() <= 1e-12
    assert (table[1] - column(lambda i: 2 * i / 512)).abs().max() > 0.1
    assert (table[1] - column(lambda i: i / 512)).abs().max() > 0.01
    pairs = table[1].reshape(256, 2)
    assert (pairs.square().sum(-1) - 1).abs().max() <= 1e-12


# where: (scores, temperature, right probabilities, their decimals, two decimals as printed, None where right)
SOFTMAX_EXAMPLES = {
    "003 §3.2": ([1.5, 0.5, 0.5], 1.0, [0.5761, 0.2119, 0.2119], 4, [0.70, 0.15, 0.15]),
    "003 §3.4 row 1": ([4.0, 1.5, 2.5], 1.0, [0.766, 0.063, 0.171], 3, [0.45, 0.15, 0.40]),
    "003 §3.4 row 2": ([1.5, 5.0, 2.0], 1.0, [0.028, 0.926, 0.046], 3, [0.10, 0.70, 0.20]),
    "003 §3.4 row 3": ([2.5, 2.0, 4.5], 1.0, [0.111, 0.067, 0.821], 3, [0.35, 0.20, 0.45]),
    "003 films": ([9.0, 7.0, 8.0, 3.0], 1.0, [0.6641, 0.0899, 0.2443, 0.0016], 4, [0.66, 0.09, 0.24, 0.01]),
    "003 films T=0.5": ([9.0, 7.0, 8.0, 3.0], 0.5, [0.867, 0.016, 0.117, 0.0], 3, [0.85, 0.04, 0.11, 0.0]),
    "003 films T=2": ([9.0, 7.0, 8.0, 3.0], 2.0, [0.494, 0.182, 0.300, 0.025], 3, [0.46, 0.19, 0.30, 0.05]),
    "003 near": ([2.0, 3.0, 4.0], 1.0, [0.090, 0.245, 0.665], 3, None),
    "003 far": ([2.0, 3.0, 10.0], 1.0, [0.0003, 0.0009, 0.9988], 4, None),
    "003 order": ([5.0, 3.0, 8.0, 1.0], 1.0, [0.0471, 0.0064, 0.9457, 0.0009], 4, [0.14, 0.02, 0.77, 0.01]),
}


@pytest.mark.parametrize("softmax", SOFTMAXES.values(), ids=SOFTMAXES)
@pytest.mark.parametrize("where", SOFTMAX_EXAMPLES)
def test_softmax(where, softmax):
    scores, temperature, expected, decimals, printed = SOFTMAX_EXAMPLES[where]
    actual = softmax(numbers(scores), temperature)
    assert abs(actual.sum() - 1) <= 1e-12
    assert_prints(actual, numbers(expected), decimals)
    if printed is not None:
        assert_misprint(actual, printed, 2)
    # A larger score never gets a smaller probability.
    assert actual[numbers(scores).argsort()].diff().min() >= 0


def test_temperature_sharpens_and_flattens():
    """Document 003: a lower temperature gives the largest score more, a higher one less."""
    largest = [float(reference.softmax(numbers([9.0, 7.0, 8.0, 3.0]), t).max()) for t in (0.5, 1.0, 2.0)]
    assert largest == sorted(largest, reverse=True)


def test_scaled_scores():
    """Document 003, §3.2 and §3.4: integer scores over √4 are the softmax's input."""
    query, keys = numbers([1, 1, 1, 0]), numbers([[1, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 1]])
    assert (keys @ query / math.sqrt(4)).tolist() == [1.5, 0.5, 0.5]
    scores = numbers([[8, 3, 5], [3, 10, 4], [5, 4, 9]])
    assert (scores / math.sqrt(4)).tolist() == [[4, 1.5, 2.5], [1.5, 5, 2], [2.5, 2, 4.5]]


def test_weighted_values():
    """Document 003, §3.4: its weights times its V, misprinted in rows 1 and 2."""
    weights = numbers([[0.45, 0.15, 0.40], [0.10, 0.70, 0.20], [0.35, 0.20, 0.45]])
    values = numbers([[1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]])
    mixed = torch.stack([sum(weights[t, s] * values[s] for s in range(3)) for t in range(3)])
    assert_prints(weights @ values, mixed, 12)
    assert_prints(mixed, numbers([[1.95, 2.95, 3.95, 4.95], [2.1, 3.1, 4.1, 5.1], [2.1, 3.1, 4.1, 5.1]]), 12)
    assert_misprint(mixed[0], [2.15, 3.15, 4.15, 5.15], 2)
    assert_misprint(mixed[1], [2.20, 3.20, 4.20, 5.20], 2)


def test_weighted_help():
    """Document 003, §3.2, step 7: its weights times its friends' values; the last should be 7.35, not 7.65."""
    values = numbers([[10, 10, 8, 9], [8, 7, 2, 6], [9, 8, 10, 1]])
    mixed = numbers([0.70, 0.15, 0.15]) @ values
    assert_prints(mixed, numbers([9.55, 9.25, 7.40, 7.35]), 12)
    assert_misprint(mixed, [9.55, 9.25, 7.40, 7.65], 2)
    # With the softmax's true weights:
    assert_prints(reference.softmax(numbers([1.5, 0.5, 0.5])) @ values, numbers([9.364, 8.940, 7.152, 6.669]), 3)


def test_films_by_exponentials():
    """Document 003: e^9 = 8103, e^7 = 1097, e^8 = 2981, e^3 = 20, together 12201."""
    exponentials = numbers([9, 7, 8, 3]).exp()
    assert exponentials.round().tolist() == [8103, 1097, 2981, 20]
    # The parts are rounded before they are added; the exact sum is 12200.8.
    assert float(exponentials.sum()) == pytest.approx(12200.8, abs=0.05)


@pytest.mark.parametrize("cut", PATCHES.values(), ids=PATCHES)
def test_patches(cut):
    """Document 000, §4.2: a 224 x 224 image in 16 x 16 patches gives 14 · 14 = 196 of 16 · 16 · 3 = 768 values."""
    image = torch.arange(3 * 224 * 224, dtype=torch.float64).reshape(3, 224, 224)
    pieces = cut(image, 16)
    assert pieces.shape == (196, 768) == (14 * 14, 16 * 16 * 3)
    assert torch.equal(pieces[15].reshape(3, 16, 16), image[:, 16:32, 16:32])


@pytest.mark.parametrize("rates", RATES.values(), ids=RATES)
def test_noam_rate(rates):
    """Document 003, §8.2: d^-0.5 min(step^-0.5, step warmup^-1.5) for the base model, d = 512 and 4000 steps."""
    values = rates(4100, 512, 4000)
    assert values[0] == pytest.approx(1.746928e-07, rel=1e-6)
    assert values[1] == pytest.approx(2 * values[0])
    assert values[1999] == pytest.approx(3.493856e-04, rel=1e-6)
    assert values[3999] == pytest.approx(6.987712e-04, rel=1e-6) == max(values)
    assert values[4099] == pytest.approx(512**-0.5 * 4100**-0.5, rel=1e-12)


def test_layer_norm_formula():
    """Document 003, §5.4.3, adds eps to the standard deviation; the paper and every library add it to the variance.

    Its class (§5.4.5) also takes the unbiased deviation.
    """
    x, one, eps = numbers([[0.001, 0.002, 0.003, 0.007]]), torch.ones(4, dtype=torch.float64), 1e-6
    right = F.layer_norm(x, (4,), one, 0 * one, eps)
    assert_prints(reference.layer_norm(x, one, 0 * one, eps), right, 12)
    # The spread is small beside √eps, so the three formulas part at once.
    assert_misprint(right, ((x - x.mean()) / (x.std(unbiased=False) + eps)).tolist(), 2)
    assert_misprint(right, ((x - x.mean()) / (x.std() + eps)).tolist(), 2)
    # Where eps does not matter the unbiased deviation still shrinks the result, by √(3/4) for four features.
    large = 1e6 * x
    ratio = (large - large.mean()) / large.std() / F.layer_norm(large, (4,), one, 0 * one, eps)
    assert_prints(ratio, numbers([[0.75**0.5] * 4]), 6)


def test_decoder_only_model_has_no_memory():
    """Document 000, §4.1: the GPT sketch gives `nn.TransformerDecoder` no memory, and cannot run.

    A decoder-only model is a stack of causally masked self-attention without cross-attention: torch's *encoder* layer.
    """
    hidden, causal = torch.randn(2, 5, 8), nn.Transformer.generate_square_subsequent_mask(5)
    sketch = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 1)
    with pytest.raises((AttributeError, TypeError, RuntimeError)):
        sketch(hidden, memory=None, tgt_mask=causal)
    decoder_only = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
    changed = hidden.clone()
    changed[:, 3:] += 1.0
    before, after = (decoder_only(x, mask=causal, is_causal=True) for x in (hidden, changed))
    assert torch.equal(before[:, :3], after[:, :3]) and not torch.allclose(before[:, 3:], after[:, 3:])
