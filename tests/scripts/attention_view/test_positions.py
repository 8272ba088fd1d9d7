"""Names of positions, and the grids of patches."""

import pytest
from transformers import AutoTokenizer

import stock_folders
from qkv.scripts.attention_view.positions import LONGEST, frames, grid_of, objects, patches, shortened, token_labels


@pytest.mark.parametrize(
    ("count", "height", "width", "patch", "expected"),
    [
        (197, 224, 224, 16, ((14, 14), 1)),
        (198, 224, 224, 16, ((14, 14), 2)),
        (196, 224, 224, [16, 16], ((14, 14), 0)),
        (7, 4, 6, 2, ((2, 3), 1)),
        (850, 800, 1066, None, ((25, 34), 0)),
        (49, 224, 224, None, ((7, 7), 0)),
        (17, 16, 16, None, ((4, 4), 1)),
        (211, 224, 224, 16, None),
    ],
)
def test_the_grid_follows_from_the_patches_or_the_shape(count, height, width, patch, expected) -> None:
    assert grid_of(count, height, width, patch) == expected


def test_patches_are_named_by_row_and_column_after_the_class_token() -> None:
    own = patches(8, 4, 6, 2, b"png")
    assert own.labels == ["class", "extra 1", "(1, 1)", "(1, 2)", "(1, 3)", "(2, 1)", "(2, 2)", "(2, 3)"]
    assert (own.grid, own.prefix, own.picture) == ((2, 3), 2, b"png")


def test_frames_are_named_by_their_time() -> None:
    assert frames(4, 2.0, b"").labels == ["0.00 s", "0.50 s", "1.00 s", "1.50 s"]
    assert frames(2, None, b"").labels == ["frame 0", "frame 1"]


def test_boxes_are_corners_and_sizes() -> None:
    assert objects(["a"], [(0.5, 0.4, 0.2, 0.6)]).boxes == [[0.4, 0.1, 0.2, 0.6]]


def test_a_part_of_a_character_has_its_name_in_the_vocabulary(tmp_path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(stock_folders.gpt2(tmp_path / "gpt2"))
    ids = tokenizer("a é")["input_ids"]
    assert token_labels(ids, tokenizer) == ["a", " ", "Ã", "©"]
    assert token_labels(ids[:1], None) == [str(ids[0])]


def test_long_labels_end_in_three_dots() -> None:
    assert shortened("a" * LONGEST) == "a" * LONGEST
    assert shortened("a" * (LONGEST + 1)) == "a" * (LONGEST - 1) + "…"
