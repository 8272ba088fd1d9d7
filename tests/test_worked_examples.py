"""The worked examples of the founding documents 000 and 003 come out; where a document misprints one, right here.

The loops of `reference.py` compute each from the document's inputs.
"""

import math

import pytest
import torch
from torch import Tensor

import reference


def numbers(rows: list) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def attended(scale: float, part: int) -> Tensor:
    """Context (0) or weights (1) of one query over three encoder states."""
    states = numbers([[[[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8], [0.9, 1.0, 1.1, 1.2]]]])
    return reference.attention(numbers([[[[0.2, 0.4, 0.6, 0.8]]]]), states, states, scale)[part].flatten()


def softmax(scores: list[float], temperature: float = 1.0) -> Tensor:
    return reference.softmax(numbers(scores), temperature)


X = numbers([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]])
HEADS = {  # the weight as printed, (in, out), and the product; all six are misprinted
    "W1Q": ([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6], [0.7, 0.8]], [[5, 6], [11.4, 14], [17.8, 22]]),
    "W1K": ([[0.2, 0.1], [0.4, 0.3], [0.6, 0.5], [0.8, 0.7]], [[6, 5], [14, 11.4], [22, 17.8]]),
    "W1V": ([[0.3, 0.1], [0.1, 0.3], [0.4, 0.2], [0.2, 0.4]], [[2.5, 2.9], [6.5, 6.9], [10.5, 10.9]]),
    "W2Q": ([[0.8, 0.7], [0.6, 0.5], [0.4, 0.3], [0.2, 0.1]], [[4, 3], [12, 9.4], [20, 15.8]]),
    "W2K": ([[0.7, 0.8], [0.5, 0.6], [0.3, 0.4], [0.1, 0.2]], [[3, 4], [9.4, 12], [15.8, 20]]),
    "W2V": ([[0.6, 0.5], [0.4, 0.3], [0.2, 0.1], [0.8, 0.7]], [[5.2, 4.2], [13.2, 10.6], [21.2, 17]]),
}
OUTPUT = numbers([[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8], [0.9, 1.0, 1.1, 1.2], [1.3, 1.4, 1.5, 1.6]])
JOINED = numbers([[1.1, 1.2, 0.5, 0.6], [2.1, 2.2, 1.5, 1.6], [3.1, 3.2, 2.5, 2.6]])
MIXED = numbers([[0.45, 0.15, 0.40], [0.10, 0.70, 0.20], [0.35, 0.20, 0.45]])
RATES = [reference.noam_rate(step, 512, 4000) for step in range(1, 4101)]

# where: (what is computed, what it is, to so many decimals)
EXAMPLES = {
    "000 §2.3 weights": (attended(1.0, 1), [0.122271, 0.272118, 0.605611], 6),
    "000 §2.3 context": (attended(1.0, 0), [0.693336, 0.793336, 0.893336, 0.993336], 6),
    "000 §2.3 scaled weights": (attended(0.5, 1), [0.211983, 0.316241, 0.471776], 6),
    "000 §2.3 scaled context": (attended(0.5, 0), [0.603917, 0.703917, 0.803917, 0.903917], 6),
    **{
        f"000 §3.2 {name}": (reference.linear(X, numbers(weight).T), product, 12)
        for name, (weight, product) in HEADS.items()
    },
    "000 §3.2 output": (
        reference.linear(JOINED, OUTPUT.T),
        [[1.94, 2.28, 2.62, 2.96], [4.74, 5.48, 6.22, 6.96], [7.54, 8.68, 9.82, 10.96]],
        12,
    ),
    "000 §3.3 position 1": (reference.sinusoidal_table(3, 4)[1], [0.8415, 0.5403, 0.0100, 0.99995], 4),
    "000 §3.3 position 2": (reference.sinusoidal_table(3, 4)[2], [0.909, -0.416, 0.020, 0.9998], 3),
    "003 §3.2": (softmax([1.5, 0.5, 0.5]), [0.5761, 0.2119, 0.2119], 4),
    "003 §3.4 row 1": (softmax([4.0, 1.5, 2.5]), [0.766, 0.063, 0.171], 3),
    "003 §3.4 row 2": (softmax([1.5, 5.0, 2.0]), [0.028, 0.926, 0.046], 3),
    "003 §3.4 row 3": (softmax([2.5, 2.0, 4.5]), [0.111, 0.067, 0.821], 3),
    "003 films": (softmax([9.0, 7.0, 8.0, 3.0]), [0.6641, 0.0899, 0.2443, 0.0016], 4),
    "003 films T=0.5": (softmax([9.0, 7.0, 8.0, 3.0], 0.5), [0.867, 0.016, 0.117, 0.0], 3),
    "003 films T=2": (softmax([9.0, 7.0, 8.0, 3.0], 2.0), [0.494, 0.182, 0.300, 0.025], 3),
    "003 near": (softmax([2.0, 3.0, 4.0]), [0.090, 0.245, 0.665], 3),
    "003 far": (softmax([2.0, 3.0, 10.0]), [0.0003, 0.0009, 0.9988], 4),
    "003 order": (softmax([5.0, 3.0, 8.0, 1.0]), [0.0471, 0.0064, 0.9457, 0.0009], 4),
    "003 §3.4 values": (
        reference.linear(MIXED, numbers([[1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]]).T),
        [[1.95, 2.95, 3.95, 4.95], [2.1, 3.1, 4.1, 5.1], [2.1, 3.1, 4.1, 5.1]],
        12,
    ),
    "003 §8.2 warm-up": (numbers([RATES[0], RATES[1], RATES[1999]]), [1.746928e-07, 3.493856e-07, 3.493856e-04], 10),
    "003 §8.2 decay": (numbers([RATES[3999], RATES[4099]]), [6.987712e-04, 512**-0.5 * 4100**-0.5], 10),
}


@pytest.mark.parametrize("where", EXAMPLES)
def test_examples(where: str) -> None:
    actual, expected, decimals = EXAMPLES[where]
    assert (actual - numbers(expected)).abs().max() <= 0.5000001 * 10.0**-decimals


def test_a_pair_of_dimensions_shares_one_sinusoid() -> None:
    """The exponent is 2 (i // 2) / d for dimension i; document 003, §2.1, raises to 2 i / d and to i / d."""
    row = reference.sinusoidal_table(2, 512)[1]
    assert (row.reshape(256, 2).square().sum(-1) - 1).abs().max() <= 1e-12
    for exponent in (lambda i: 2 * i / 512, lambda i: i / 512):
        other = numbers([(math.cos if i % 2 else math.sin)(1 / 10000.0 ** exponent(i)) for i in range(512)])
        assert (row - other).abs().max() > 0.01


def test_eps_of_layer_norm_is_added_to_the_variance() -> None:
    """Document 003, §5.4.3, adds it to the standard deviation, and takes the unbiased one in its class (§5.4.5)."""
    x, one, eps = numbers([[0.001, 0.002, 0.003, 0.007]]), torch.ones(4, dtype=torch.float64), 1e-6
    right = reference.layer_norm(x, one, 0 * one, eps)
    for unbiased in (False, True):
        assert (right - (x - x.mean()) / (x.std(unbiased=unbiased) + eps)).abs().max() > 5e-3
