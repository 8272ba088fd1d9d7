"""Figures of a run show the weights that were captured, of different examples, in files of known size."""

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from PIL import Image

import qkv
import tiny
from qkv.scripts.attention_view import run_figures
from qkv.scripts.attention_view.reading import Reading
from qkv.scripts.attention_view.run_figures import (
    QUERIES,
    different_examples,
    draw_alignment,
    draw_patches,
    draw_queries,
    draw_run,
)
from qkv.scripts.attention_view.stacks import Weights
from qkv.scripts.data.examples import Columns
from qkv.scripts.tasks.task import Task


def drawn(axis: Axes) -> Weights:
    """The weights that axes show, above a picture if there is one."""
    return np.asarray(axis.images[-1].get_array())


def weights_of(model: Any, inputs: dict[str, Any], stack: str) -> Weights:
    """Weights of the first example, the mean over heads: (L, T, S)."""
    with torch.no_grad(), qkv.capture_attention(model, inputs) as captured:
        return torch.stack([record.weights[0].mean(0) for record in captured.select(stack)]).numpy()


@pytest.mark.parametrize("fields", [{}, {"class_token": False, "pooling": "mean"}], ids=["class token", "mean"])
def test_patches_are_drawn_of_each_image_and_layer(fields: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = qkv.QkvImageEncoderForImageClassification(tiny.image_encoder(**fields)).eval()
    pixels = tiny.images()["pixel_values"][:2]
    figure, caption = draw_patches([Reading(model, {"pixel_values": each[None]}) for each in pixels], ["a", "$b"])
    axes, grid, prefix = figure.axes, model.config.grid, model.config.num_prefix_tokens
    expected = weights_of(model, {"pixel_values": pixels[1:]}, "encoder")
    rows = expected[:, 0] if prefix else expected.mean(1)
    for axis, row in zip(axes[4:6], rows[:, prefix:], strict=False):
        np.testing.assert_allclose(drawn(axis), row.reshape(grid), atol=1e-6)
    assert [axis.get_title() for axis in (axes[0], axes[3])] == ["a", r"\$b"]
    assert len(axes) == 2 * (1 + 2) + 1 and ("class token" in caption) == bool(prefix)


@torch.no_grad()
def test_object_queries_are_drawn_by_score_with_the_boxes_of_those_that_found_something() -> None:
    torch.manual_seed(0)
    model = qkv.QkvDetectionForObjectDetection(tiny.detector()).eval()
    given = tiny.images(batch=1)
    outputs = model(**given)
    scores, order = outputs.logits[0].softmax(-1)[:, :-1].amax(-1).sort(descending=True)
    with mock.patch.object(run_figures, "MIN_SCORE", float(scores[1])):
        figure, _ = draw_queries([Reading(model, given)], ["square"])
    image, *maps = figure.axes[: 1 + QUERIES]
    expected = weights_of(model, given, "cross")[-1]
    found = [True, True, False]
    for axis, query, is_found in zip(maps, order.tolist(), found, strict=False):
        np.testing.assert_allclose(drawn(axis).flatten(), expected[query], atol=1e-6)
        frames = [patch for patch in axis.patches if isinstance(patch, Rectangle)]
        assert (axis.get_title() == "no object") != is_found and len(frames) == is_found
        for frame in frames:
            middle = np.add(frame.get_xy(), (frame.get_width() / 2, frame.get_height() / 2))
            np.testing.assert_allclose(middle, outputs.pred_boxes[0, query, :2], atol=1e-3)
    assert len(image.patches) == sum(found)


def test_recordings_are_aligned_under_their_spectrogram() -> None:
    torch.manual_seed(0)
    model = qkv.QkvSpeechEncoderDecoderForSpeechSeq2Seq(tiny.speech_encoder_decoder()).eval()
    given = {name: value[:1] for name, value in tiny.audio_with_targets().items()}
    reading = Reading(model, given, prompt=1, last=[3], seconds=0.5)
    figure, caption = draw_alignment([reading], ["low mid"])
    spectrogram, matrix = figure.axes[:2]
    maps = weights_of(model, given, "cross")
    sharpest = maps[maps.max(-1).mean(-1).argmax()]
    np.testing.assert_allclose(drawn(matrix), sharpest[: len(drawn(matrix))], atol=1e-6)
    assert spectrogram.get_xlim() == matrix.get_xlim() and "spectrogram" in caption
    assert [label.get_text() for label in matrix.get_xticklabels()][0] == "0.00 s"


class Images(Task):
    kind = "image-classification"


class Texts(Task):
    kind = "translation"
    references = ["six", "six", "eight"]


def test_examples_are_different_ones_of_the_test_split(tmp_path: Path) -> None:
    labels, pixels = torch.tensor([1, 1, 0, 1]), tiny.images(batch=4)["pixel_values"]
    split = Columns({"pixel_values": pixels, "labels": labels})
    task = Images(None, {"train": split, "validation": split.select([3]), "test": split}, None, labels=["a", "b", "c"])
    examples = different_examples(task, 6)
    assert list(examples) == ["b", "a"]
    assert [torch.equal(batch["pixel_values"], pixels[[n]]) for n, batch in zip((0, 2), examples.values(), strict=True)]
    model = qkv.QkvImageEncoderForImageClassification(tiny.image_encoder()).eval()
    made = draw_run(model, task, tmp_path)
    assert list(made) == ["attention.png"] and Image.open(tmp_path / "attention.png").size > (300, 300)


@pytest.mark.parametrize("attention", ["additive", "dot", "none"])
def test_written_tokens_are_aligned_with_their_source(attention: str, tmp_path: Path) -> None:
    config = qkv.QkvRecurrentConfig(vocab_size=9, hidden_size=8, attention=attention)
    model = qkv.QkvRecurrentForConditionalGeneration(config).eval()
    ids, labels = torch.tensor([[5, 6, 7, 1], [5, 6, 7, 1], [8, 6, 2, 1]]), torch.tensor([[6, 1], [6, 1], [7, 1]])
    columns = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    task = Texts(None, {"train": None, "test": Columns({**columns, "_target": torch.arange(3)})}, None)
    shown = []
    with mock.patch.object(Axes, "imshow", lambda self, image, **options: shown.append(image)):
        made = draw_run(model, task, tmp_path)
    assert list(made) == [path.name for path in tmp_path.iterdir()] == ["alignment.png"] * (attention != "none")
    expected = [] if attention == "none" else [weights_of(model, {n: v[[i]] for n, v in columns.items()}, "cross")[0]
                                               for i in (0, 2)]  # fmt: skip
    assert len(shown) == len(expected) and all(map(np.allclose, shown, expected))


def test_a_task_without_a_figure_has_none(tmp_path: Path) -> None:
    task = Task(None, {"train": None}, None)
    assert draw_run(qkv.QkvEncoderModel(tiny.encoder()), task, tmp_path) == {} and list(tmp_path.iterdir()) == []
