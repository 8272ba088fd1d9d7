"""Figures of a run show the weights that were captured, of different examples of the test split."""

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image

import qkv
import tiny
from qkv.scripts.attention_view import run_figures
from qkv.scripts.attention_view.reading import Reading, capture
from qkv.scripts.attention_view.run_figures import draw_run
from qkv.scripts.data.examples import Columns
from qkv.scripts.tasks.task import Task


def weights_of(model: Any, inputs: dict[str, Any], stack: str) -> Any:
    """Weights of the first example in the last layer, mean over heads: (T, S)."""
    with torch.no_grad(), qkv.capture_attention(model, inputs) as captured:
        return captured.select(stack, -1)[0].weights[0].mean(0).numpy()


def drawn(model: Any, task: Task, folder: Path) -> tuple[dict[str, str], list[Any]]:
    """The figure of a run, and the weights in its maps and matrices."""
    shown: list[Any] = []
    with (
        mock.patch.object(run_figures, "draw_map", lambda axis, row, *_: shown.append(row)),
        mock.patch.object(run_figures, "draw_matrix", lambda axis, weights, *_: shown.append(weights)),
    ):
        return draw_run(model, task, folder), shown


class Images(Task):
    kind = "image-classification"


class Texts(Task):
    kind = "translation"
    references = ["six", "six", "eight"]


@pytest.mark.parametrize("fields", [{}, {"class_token": False, "pooling": "mean"}], ids=["class token", "mean"])
def test_images_are_drawn_under_the_class_token_or_the_mean(fields: dict[str, Any], tmp_path: Path) -> None:
    labels, pixels = torch.tensor([1, 1, 0, 1]), tiny.images(batch=4)["pixel_values"]
    split = Columns({"pixel_values": pixels, "labels": labels})
    task = Images(None, {"train": split, "validation": split.select([3]), "test": split}, None, labels=["a", "$b", "c"])
    torch.manual_seed(0)
    model = qkv.QkvImageEncoderForImageClassification(tiny.image_encoder(**fields)).eval()
    made, shown = drawn(model, task, tmp_path)
    assert list(made) == ["attention.png"] and len(shown) == 2  # of three classes two are in the split
    for row, number in zip(shown, (0, 2), strict=True):
        weights = weights_of(model, {"pixel_values": pixels[[number]]}, "encoder")
        np.testing.assert_allclose(row, weights.mean(0) if fields else weights[0], atol=1e-6)
    draw_run(model, task, tmp_path)
    assert Image.open(tmp_path / "attention.png").size > (300, 300)


def test_figures_of_images_share_a_scale_and_name_both_classes(tmp_path: Path) -> None:
    split = Columns({"pixel_values": tiny.images(batch=2)["pixel_values"], "labels": torch.tensor([0, 1])})
    task = Images(None, {"train": split, "test": split}, None, labels=["a", "b"])
    model = qkv.QkvImageEncoderForImageClassification(tiny.image_encoder(num_labels=2)).eval()
    with torch.no_grad():
        model.classifier.bias.copy_(torch.tensor([0.0, 50.0]))
    with mock.patch.object(run_figures.Figure, "savefig", autospec=True) as save:
        draw_run(model, task, tmp_path)
    *maps, bar = save.call_args.args[0].axes
    assert [axis.get_title().splitlines()[0].split()[2::2] for axis in maps] == [["a,", "b"], ["b,", "b"]]
    limits = {axis.images[-1].get_clim() for axis in maps}
    assert limits == {bar.get_ylim()} and bar.get_ylabel()
    even = 1 / (1 + 4 * 4)
    assert limits.pop()[1] >= 5 * even, "nearly even attention is pale"


@pytest.mark.parametrize("attention", ["additive", "dot", "none"])
def test_written_tokens_are_aligned_with_their_source(attention: str, tmp_path: Path) -> None:
    config = qkv.QkvRecurrentConfig(vocab_size=9, hidden_size=8, attention=attention)
    model = qkv.QkvRecurrentForConditionalGeneration(config).eval()
    ids, labels = torch.tensor([[5, 6, 7, 1], [5, 6, 7, 1], [8, 6, 2, 1]]), torch.tensor([[6, 1], [6, 1], [7, 1]])
    columns = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    task = Texts(None, {"train": None, "test": Columns({**columns, "_target": torch.arange(3)})}, None)
    made, shown = drawn(model, task, tmp_path)
    assert list(made) == [path.name for path in tmp_path.iterdir()] == ["alignment.png"] * (attention != "none")
    if attention != "none":
        expected = [weights_of(model, {name: each[[row]] for name, each in columns.items()}, "cross") for row in (0, 2)]
        assert all(map(np.allclose, shown, expected)) and len(shown) == 2


def test_the_best_object_query_is_drawn_with_its_box() -> None:
    torch.manual_seed(0)
    model, inputs, axis = qkv.QkvDetectionForObjectDetection(tiny.detector()).eval(), tiny.images(batch=1), mock.Mock()
    shown: list[Any] = []
    with mock.patch.object(run_figures, "draw_map", lambda axis, row, *_: shown.append(row)), torch.no_grad():
        run_figures.draw_stack(axis, capture(Reading(model, inputs), {"cross": -1})[-1], "a square")
        outputs = model(**inputs)
    best = int(outputs.logits[0].softmax(-1)[:, :-1].amax(-1).argmax())
    np.testing.assert_allclose(shown[0], weights_of(model, inputs, "cross")[best], atol=1e-6)
    frame = axis.add_patch.call_args.args[0]
    middle = np.add(frame.get_xy(), (frame.get_width() / 2, frame.get_height() / 2))
    np.testing.assert_allclose(middle, outputs.pred_boxes[0, best, :2], atol=1e-3)


def test_a_task_without_a_figure_has_none(tmp_path: Path) -> None:
    task = Task(None, {"train": None}, None)
    assert draw_run(qkv.QkvEncoderModel(tiny.encoder()), task, tmp_path) == {} and list(tmp_path.iterdir()) == []
