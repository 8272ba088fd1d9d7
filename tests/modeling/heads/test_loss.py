"""Every loss is the papers', and its parts add up to the loss of the whole batch."""

import pytest
import torch
from torch.export import Dim

import reference
import tiny
from comparison import EXACT, assert_same, decoder, draw, encoder, exact
from errors import raises_sentence
from qkv.modeling import QkvEncoderForMaskedLM
from qkv.modeling.heads.loss import (
    IGNORED,
    classification,
    contrastive,
    cross_entropy,
    masked_image_loss,
    next_tokens,
    problem_type,
    question_answering_loss,
)

LABELS = torch.tensor([[0, 3, IGNORED, 6, 2], [IGNORED, IGNORED, 5, 1, 1]])
SMOOTHING = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
COUNTS = pytest.mark.parametrize("count", [None, 13, torch.tensor(13)], ids=["own", "number", "tensor"])


def number(count):
    return None if count is None else 13


@COUNTS
@SMOOTHING
def test_cross_entropy_of_tokens_and_of_the_next(smoothing, count):
    logits = draw(2, 5, 7)
    options = (IGNORED, smoothing, number(count))
    assert_same(
        cross_entropy(logits, LABELS, count, smoothing), reference.cross_entropy(logits, LABELS, *options), logits
    )
    expected = reference.next_token_loss(logits, LABELS, *options)
    assert_same(cross_entropy(logits, next_tokens(LABELS), count, smoothing), expected, logits)
    assert next_tokens(None, LABELS) is next_tokens(LABELS * 2, LABELS) is LABELS
    # 0 / 0 would poison every weight of a data-parallel step; transformers' own losses do.
    none = torch.full((2, 5), IGNORED)
    assert_same(cross_entropy(logits, none, count, smoothing), reference.cross_entropy(logits, none, *options), logits)


@SMOOTHING
def test_parts_add_up_to_the_whole(smoothing):
    """Rows with three and four targets: the mean of their means would be wrong."""
    logits, total = draw(2, 5, 7), int((LABELS != IGNORED).sum())
    whole = cross_entropy(logits, LABELS, None, smoothing)
    parts, means = (
        [cross_entropy(logits[row : row + 1], LABELS[row : row + 1], count, smoothing) for row in range(2)]
        for count in (total, None)
    )
    assert_same(parts[0] + parts[1], whole, logits)
    assert (sum(means) / 2 - whole).abs() > 1e-3


def test_losses_of_half_precision_are_taken_in_single():
    logits = draw(2, 5, 7).detach().bfloat16()
    loss = cross_entropy(logits, LABELS)
    assert loss.dtype == torch.float32
    assert (loss - reference.cross_entropy(logits.double(), LABELS)).abs() <= 1e-6


SKIPPING = torch.tensor([[0, 1, 2, 5, 6, 0, 1]])  # which begins no document
RESTARTING, ENDS = torch.tensor([[0, 1, 2, 0, 1, 0, 1]]), torch.tensor([0, 3, 5, 7], dtype=torch.int32)


@pytest.mark.parametrize(
    ("positions", "boundaries", "documents"),
    [(RESTARTING, None, (3, 2, 2)), (None, ENDS, (3, 2, 2)), (RESTARTING, ENDS, (3, 2, 2)), (SKIPPING, None, (5, 2))],
)
def test_no_document_predicts_the_next(positions, boundaries, documents):
    """A packed row's loss is that of its documents."""
    logits, labels = draw(1, 7, 7), torch.tensor([[1, 2, 3, 4, 5, 6, 0]])
    count, pieces = 7 - len(documents), zip(logits.split(documents, 1), labels.split(documents, 1), strict=True)
    expected = sum(reference.next_token_loss(*piece, count=count) for piece in pieces)
    assert_same(cross_entropy(logits, next_tokens(labels, None, positions, boundaries)), expected, logits)


def test_positions_of_padding_begin_no_document():
    """Left-padded rows as `generate` and collators number them."""
    logits, labels = draw(1, 6, 7), torch.tensor([[IGNORED, IGNORED, 3, 4, 5, 6]])
    actual = cross_entropy(logits, next_tokens(labels, None, torch.tensor([[1, 1, 0, 1, 2, 3]])))
    assert_same(actual, reference.next_token_loss(logits[:, 2:], labels[:, 2:]), logits)


@COUNTS
@SMOOTHING
def test_classes(smoothing, count):
    logits, labels = draw(5, 3), torch.tensor([2, 0, 1, 2, 2])
    config = encoder(num_labels=3, label_smoothing=smoothing)
    expected = reference.cross_entropy(logits, labels, IGNORED, smoothing, number(count))
    for shape in ((5,), (5, 1)):
        assert_same(classification(logits, labels.reshape(shape), config, count), expected, logits)


@COUNTS
@pytest.mark.parametrize("width", [1, 3])
def test_regression_and_several_labels_at_once(width, count):
    logits, numbers, labels = draw(5, width), torch.randn(5, width), torch.randint(0, 2, (5, width))
    config = encoder(num_labels=width, problem_type="regression")
    expected = reference.mean_squared_error(logits, numbers.double(), number(count))
    assert_same(classification(logits, numbers.squeeze(-1), config, count), expected, logits)
    expected = reference.binary_cross_entropy(logits, labels.double(), number(count))
    config = encoder(num_labels=width, problem_type="multi_label_classification")
    assert_same(classification(logits, labels, config, count), expected, logits)


SMOOTHED = [case for case in tiny.LOSSES if hasattr(case.config(), "label_smoothing")]


@pytest.mark.costly(14)
@pytest.mark.parametrize("case", SMOOTHED, ids=lambda case: case.name)
def test_every_loss_is_smoothed_or_refuses_to_be(case):
    plain, model = case.build(label_smoothing=0.0)(**case.inputs()).loss, case.build(label_smoothing=0.3)
    if "MaskedImage" in case.name:
        with raises_sentence("label_smoothing=0.3"):
            model(**case.inputs())
    else:
        assert abs(model(**case.inputs()).loss - plain) > 1e-4


def test_smoothing_of_two_classes_and_of_numbers():
    logits, labels = draw(5, 3), torch.randint(0, 2, (5, 3))
    config = encoder(num_labels=3, problem_type="multi_label_classification", label_smoothing=0.2)
    expected = reference.binary_cross_entropy(logits, labels.double() * 0.8 + 0.1)
    assert_same(classification(logits, labels, config), expected, logits)
    with raises_sentence("label_smoothing=0.2"):
        classification(logits, labels.float(), encoder(num_labels=3, problem_type="regression", label_smoothing=0.2))


def test_problem_type_is_transformers_rule():
    whole, numbers = torch.tensor([1, 0]), torch.tensor([1.0, 0.0])
    assert [problem_type(whole, 1), problem_type(numbers, 1)] == ["regression"] * 2
    assert problem_type(whole, 2) == "single_label_classification"
    assert problem_type(numbers, 2) == "multi_label_classification"


def test_binary_loss_stays_finite():
    logits = torch.tensor([[800.0, -800.0]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[0.0, 1.0]])
    actual = classification(logits, labels, decoder(num_labels=2))
    assert_same(actual, reference.binary_cross_entropy(logits, labels.double()), logits)


def test_padding_predicts_nothing_and_a_token_before_it_the_next_real_one():
    logits, labels = draw(1, 7, 7), torch.tensor([[6, 1, 2, 6, 3, 4, 5]])
    mask = torch.tensor([[0, 1, 1, 0, 1, 1, 0]])
    expected = reference.next_token_loss(logits[mask == 1][None], labels[mask == 1][None])
    for positions in (None, torch.tensor([[9, 0, 1, 9, 2, 3, 9]])):
        assert_same(cross_entropy(logits, next_tokens(labels, None, positions, None, mask)), expected, logits)
    shifted = next_tokens(labels, labels, None, None, mask)
    assert torch.equal(shifted, labels.masked_fill(mask == 0, IGNORED))


def test_no_answer_lies_in_padding():
    starts, ends, mask = draw(2, 7), draw(2, 7), torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]])
    first, last = torch.tensor([2, 5]), torch.tensor([6, 0])
    scores = (starts[:1, 2:], ends[:1, 2:])
    expected = reference.cross_entropy(scores[0], first[:1] - 2, IGNORED, 0.1) / 2
    parts = [reference.cross_entropy(scores[1], last[:1] - 2, IGNORED, 0.1, 1)]
    parts.append(reference.cross_entropy(ends[1:, :4], last[1:], IGNORED, 0.1, 1))
    expected = expected + sum(parts) / 4
    assert_same(question_answering_loss((starts, ends), (first, last), mask, None, 0.1), expected, starts, ends)


@COUNTS
@pytest.mark.parametrize("outside", [-1, 7, 400])
@SMOOTHING
def test_span(smoothing, outside, count):
    starts, ends = draw(3, 7), draw(3, 7)
    places = torch.tensor([0, 6, outside]), torch.tensor([3, 6, outside])
    expected = reference.span_loss(starts, ends, *places, smoothing, number(count))
    for shape in ((3,), (3, 1)):
        given = [place.reshape(shape) for place in places]
        assert_same(question_answering_loss((starts, ends), given, None, count, smoothing), expected, starts, ends)


@pytest.mark.parametrize("patch", [1, 2, 3])
def test_masked_pixels(patch):
    pixels, guess = draw(2, 3, 3 * patch, 5 * patch), draw(2, 3, 3 * patch, 5 * patch)
    masked = torch.arange(30).view(2, 3, 5) % 4 == 1
    with exact():
        actual = masked_image_loss(pixels, guess, masked, patch)
    # SimMIM's code, and so transformers, divides by the number of masked pixels plus 1e-5.
    count = int(masked.sum()) * patch**2
    expected = reference.masked_pixel_loss(pixels, guess, masked.flatten(1), patch) * count / (count + 1e-5)
    assert_same(actual, expected, pixels, guess)
    assert masked_image_loss(pixels, guess, torch.zeros_like(masked), patch).abs() <= EXACT


@COUNTS
def test_contrastive(count):
    images, texts, scale = draw(5, 3), draw(5, 3), draw(1)[0]
    expected = reference.contrastive(images, texts, scale, number(count))
    assert_same(contrastive(images, texts, scale, count), expected, images, texts, scale)


@COUNTS
def test_contrastive_by_sigmoids(count):
    images, texts, scale, bias = draw(5, 3), draw(5, 3), draw(1)[0], draw(1)[0]
    expected = reference.sigmoid_contrastive(images, texts, scale, bias, number(count))
    assert_same(contrastive(images, texts, scale, count, bias), expected, images, texts, scale, bias)


def test_contrastive_parts_are_contests_of_their_own():
    """They add up to the mean over pairs, which is not the loss of all pairs in one contest."""
    images, texts, scale = draw(5, 3), draw(5, 3), torch.tensor(2.0, dtype=torch.float64)
    parts = [(images[:2], texts[:2]), (images[2:], texts[2:])]
    total = sum(contrastive(*part, scale, 5) for part in parts)
    means = [contrastive(*part, scale) * len(part[0]) / 5 for part in parts]
    assert_same(total, means[0] + means[1], images, texts)
    assert (total - contrastive(images, texts, scale)).abs() > 1e-1


@pytest.mark.parametrize(("images", "texts"), [(3, 4), (0, 0)])
def test_what_is_no_pair_is_refused(images, texts):
    with raises_sentence(f"{images} images", f"{texts} texts", "return_loss"):
        contrastive(torch.ones(images, 2), torch.ones(texts, 2), torch.tensor(1.0))


class Scores(torch.nn.Module):
    """The logits of a masked language model, of inputs by position."""

    def __init__(self):
        super().__init__()
        self.model = QkvEncoderForMaskedLM(encoder(vocab_size=tiny.VOCABULARY)).eval()

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


def test_an_export_leaves_batch_and_length_open():
    """Python's `len` of a tensor would fix them."""
    model, sizes = Scores(), {0: Dim("batch", min=2, max=64), 1: Dim("length", min=2, max=12)}
    given, other = (tuple(tiny.text(batch=rows, length=long).values()) for rows, long in ((3, 9), (5, 12)))
    graph = torch.export.export(model, given, dynamic_shapes=(sizes, sizes), strict=False).module()
    real = other[1].bool()
    torch.testing.assert_close(graph(*other)[real], model(*other)[real], rtol=1e-5, atol=1e-5)
