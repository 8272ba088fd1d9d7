"""Every loss is the papers', and its parts add up to the loss of the whole batch."""

import pytest
import torch

import reference
from comparison import EXACT, assert_same, decoder, draw, encoder, exact
from errors import raises_sentence
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


@COUNTS
@SMOOTHING
def test_cross_entropy(smoothing, count):
    logits = draw(2, 5, 7)
    expected = reference.cross_entropy(logits, LABELS, IGNORED, smoothing, None if count is None else 13)
    assert_same(cross_entropy(logits, LABELS, count, smoothing), expected, logits)


@SMOOTHING
def test_cross_entropy_without_a_target_is_zero(smoothing):
    """0 / 0 would poison every weight of a data-parallel step; transformers' own losses do."""
    logits, labels = draw(2, 5, 7), torch.full((2, 5), IGNORED)
    expected = reference.cross_entropy(logits, labels, IGNORED, smoothing)
    assert_same(cross_entropy(logits, labels, label_smoothing=smoothing), expected, logits)


@SMOOTHING
def test_parts_add_up_to_the_whole(smoothing):
    """Rows with three and four targets: the mean of their means would be wrong."""
    logits, total = draw(2, 5, 7), int((LABELS != IGNORED).sum())
    whole = cross_entropy(logits, LABELS, None, smoothing)
    parts = [cross_entropy(logits[row : row + 1], LABELS[row : row + 1], total, smoothing) for row in range(2)]
    assert_same(parts[0] + parts[1], whole, logits)
    means = [cross_entropy(logits[row : row + 1], LABELS[row : row + 1], None, smoothing) for row in range(2)]
    assert ((means[0] + means[1]) / 2 - whole).abs() > 1e-3


def test_losses_of_half_precision_are_taken_in_single():
    logits = draw(2, 5, 7).detach().bfloat16()
    loss = cross_entropy(logits, LABELS)
    assert loss.dtype == torch.float32
    assert (loss - reference.cross_entropy(logits.double(), LABELS)).abs() <= 1e-6


@COUNTS
@SMOOTHING
def test_next_token(smoothing, count):
    logits = draw(2, 5, 7)
    expected = reference.next_token_loss(logits, LABELS, IGNORED, smoothing, None if count is None else 13)
    assert_same(cross_entropy(logits, next_tokens(LABELS), count, smoothing), expected, logits)
    assert next_tokens(None, LABELS) is next_tokens(LABELS * 2, LABELS) is LABELS


def test_no_document_predicts_the_next():
    """A packed row's loss is that of its documents: 2 + 1 + 1 predictions, and no other."""
    logits, labels = draw(1, 7, 7), torch.tensor([[1, 2, 3, 4, 5, 6, 0]])
    places = torch.tensor([[0, 1, 2, 5, 6, 0, 1]])
    restarting = torch.tensor([[0, 1, 2, 0, 1, 0, 1]])
    documents = [slice(0, 3), slice(3, 5), slice(5, 7)]
    parts = [reference.next_token_loss(logits[:, part], labels[:, part], count=4) for part in documents]
    assert_same(cross_entropy(logits, next_tokens(labels, None, restarting)), sum(parts), logits)
    boundaries = torch.tensor([0, 3, 5, 7], dtype=torch.int32)
    assert_same(cross_entropy(logits, next_tokens(labels, boundaries=boundaries)), sum(parts), logits)
    assert_same(cross_entropy(logits, next_tokens(labels, None, restarting, boundaries)), sum(parts), logits)
    # Positions that only skip begin no document.
    parts = [
        reference.next_token_loss(logits[:, part], labels[:, part], count=5) for part in (slice(0, 5), slice(5, 7))
    ]
    assert_same(cross_entropy(logits, next_tokens(labels, None, places)), sum(parts), logits)


def test_positions_of_padding_begin_no_document():
    """Left-padded rows as `generate` and collators number them."""
    logits, labels = draw(1, 6, 7), torch.tensor([[IGNORED, IGNORED, 3, 4, 5, 6]])
    places = torch.tensor([[1, 1, 0, 1, 2, 3]])
    assert_same(
        cross_entropy(logits, next_tokens(labels, None, places)),
        reference.next_token_loss(logits[:, 2:], labels[:, 2:]),
        logits,
    )


@COUNTS
@SMOOTHING
def test_classes(smoothing, count):
    logits, labels = draw(5, 3), torch.tensor([2, 0, 1, 2, 2])
    config = encoder(num_labels=3, label_smoothing=smoothing)
    expected = reference.cross_entropy(logits, labels, IGNORED, smoothing, None if count is None else 13)
    for shape in ((5,), (5, 1)):
        assert_same(classification(logits, labels.reshape(shape), config, count), expected, logits)


@COUNTS
@pytest.mark.parametrize("width", [1, 3])
def test_regression(width, count):
    logits, labels = draw(5, width), torch.randn(5, width)
    config = encoder(num_labels=width, problem_type="regression")
    expected = reference.mean_squared_error(logits, labels.double(), None if count is None else 13)
    assert_same(classification(logits, labels.squeeze(-1), config, count), expected, logits)


@COUNTS
def test_several_labels_at_once(count):
    logits, labels = draw(5, 3), torch.randint(0, 2, (5, 3))
    expected = reference.binary_cross_entropy(logits, labels.double(), None if count is None else 13)
    config = encoder(num_labels=3, problem_type="multi_label_classification")
    assert_same(classification(logits, labels, config, count), expected, logits)
    # Yes-or-no's as numbers say so themselves.
    assert_same(classification(logits, labels.float(), encoder(num_labels=3), count), expected, logits)


def test_problem_type_is_transformers_rule():
    whole, number = torch.tensor([1, 0]), torch.tensor([1.0, 0.0])
    assert [problem_type(whole, 1), problem_type(number, 1)] == ["regression"] * 2
    assert problem_type(whole, 2) == "single_label_classification"
    assert problem_type(number, 2) == "multi_label_classification"


def test_binary_loss_stays_finite():
    logits = torch.tensor([[800.0, -800.0]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[0.0, 1.0]])
    actual = classification(logits, labels, decoder(num_labels=2))
    assert_same(actual, reference.binary_cross_entropy(logits, labels.double()), logits)


@COUNTS
@pytest.mark.parametrize("outside", [-1, 7, 400])
@SMOOTHING
def test_span(smoothing, outside, count):
    starts, ends = draw(3, 7), draw(3, 7)
    first, last = torch.tensor([0, 6, outside]), torch.tensor([3, 6, outside])
    given = {"num_items_in_batch": count, "label_smoothing": smoothing}
    expected = reference.span_loss(starts, ends, first, last, smoothing, None if count is None else 13)
    for shape in ((3,), (3, 1)):
        assert_same(
            question_answering_loss(starts, ends, first.reshape(shape), last.reshape(shape), **given),
            expected,
            starts,
            ends,
        )


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


def test_masked_pixels_of_nothing_are_no_loss():
    pixels, guess = draw(2, 3, 4, 4), draw(2, 3, 4, 4)
    assert masked_image_loss(pixels, guess, torch.zeros(2, 2, 2, dtype=torch.bool), 2).abs() <= EXACT


def test_without_labels_there_is_no_loss():
    logits = draw(2, 5, 7)
    assert cross_entropy(logits, None) is None and next_tokens(None) is None
    assert classification(logits[:, 0], None, encoder()) is None
    assert question_answering_loss(logits[..., 0], logits[..., 1], None, torch.zeros(2)) is None


@COUNTS
def test_contrastive(count):
    images, texts, scale = draw(5, 3), draw(5, 3), draw(1)[0]
    expected = reference.contrastive(images, texts, scale, None if count is None else 13)
    assert_same(contrastive(images, texts, scale, count), expected, images, texts, scale)


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
