"""Objects in boxes: read in any form, seen as the image processor has them, mirrored by place alone, judged by COCO."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from datasets import ClassLabel, Dataset, Features, List, Value
from datasets import Image as Picture
from PIL import Image
from transformers import DetrForObjectDetection, pipeline

from errors import raises_sentence
from qkv.scripts.data.boxes import check_objects
from qkv.scripts.data.examples import Batch, InvalidRecord
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.data.validation import check_image
from qkv.scripts.lab.stock_model import STOCK, build_stock
from qkv.scripts.recipes import loading as recipe
from qkv.scripts.tasks import registry as data
from qkv.scripts.tasks.task import Task
from qkv.scripts.training.run import train

NAMES = ["circle", "square", "triangle"]
TINY = ["model.hidden_size=16", "model.encoder.num_hidden_layers=1", "model.decoder.num_hidden_layers=2",
        "model.num_attention_heads=2", "model.encoder.backbone_config.hidden_sizes=[8, 16]", "text.made=40",
        "max_steps=2", "warmup_steps=1", "batch_size=8", "eval_every=1"]  # fmt: skip
WRONG = [[1, 2, 3], [1, 2, 0, 4], [1, 2, 3, float("nan")], [1, 2, 3, "4"], "box"]


@pytest.fixture(scope="module")
def task() -> Task:
    return data.load(recipe.load("shapes-detect", TINY))


def in_pixels(batch: Batch, index: int) -> torch.Tensor:
    """Boxes of an image, left, top, width, height."""
    boxes, (height, width) = batch["labels"][index]["boxes"], batch["_size"][index].tolist()
    scale = torch.tensor([width, height, width, height])
    return torch.cat((boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, 2:]), 1) * scale


def test_the_model_is_given_the_boxes_of_the_data(task: Task) -> None:
    records = task.train.__getitems__(range(6))
    batch = task.collate(records, None)
    assert batch["pixel_values"].shape == (6, 3, 48, 48) and batch["pixel_mask"].all()
    for index, record in enumerate(records):
        assert torch.allclose(in_pixels(batch, index), torch.tensor(record["objects"]["bbox"]), atol=1e-4)
        assert batch["labels"][index]["class_labels"].tolist() == record["objects"]["category"]
    assert task.count(batch).tolist() == [sum(len(record["objects"]["bbox"]) for record in records), 6]


def test_half_are_mirrored_and_their_boxes_too(task: Task) -> None:
    records = task.train.__getitems__([0] * 40)
    plain, batch = task.collate(records[:1], None), task.collate(records, range(40))
    left, _, width, _ = in_pixels(plain, 0).T
    same = [torch.equal(pixels, plain["pixel_values"][0]) for pixels in batch["pixel_values"]]
    for index, unturned in enumerate(same):
        assert torch.allclose(in_pixels(batch, index)[:, 0], left if unturned else 48 - left - width, atol=1e-4)
        assert unturned or torch.equal(batch["pixel_values"][index], plain["pixel_values"][0].flip(-1))
    assert 10 < sum(same) < 30
    again = task.collate(records[:5], range(7, 12))
    assert torch.equal(again["pixel_values"], batch["pixel_values"][7:12])


def test_boxes_are_parts_of_the_image_without_its_padding(tmp_path: Path) -> None:
    for place in range(20):
        Image.new("RGB", ((60, 30), (30, 40))[place % 2], (place, 0, 0)).save(tmp_path / f"{place}.png")
    objects = {"bbox": [[6.0, 3.0, 15.0, 12.0]], "category": ["a"]}
    rows = [{"image": {"path": str(tmp_path / f"{place}.png")}, "objects": objects} for place in range(20)]
    features = Features({"image": Picture(decode=False), "objects": {"bbox": List(List(Value("float64"))),
                         "category": List(ClassLabel(names=["a", "b"]))}})  # fmt: skip
    Dataset.from_list(rows, features).save_to_disk(tmp_path / "saved")
    task = data.load(recipe.load("shapes-detect", [*TINY, f"data={tmp_path / 'saved'}", "holdout=0.15"]))
    assert task.labels == ["a", "b"] and task.sizes() == {"train": 15, "validation": 3, "test": 2}
    batch = task.collate(task.train.__getitems__([0, 1]), None)
    assert not batch["pixel_mask"].flatten(1).all(1).any()  # one is wider, the other higher
    for index in range(2):
        assert torch.allclose(in_pixels(batch, index), torch.tensor(objects["bbox"]), atol=1e-4)


def test_objects_may_be_lists_or_json_and_classes_words() -> None:
    expected = [([1.0, 2.0, 3.0, 4.0], 1), ([0.0, 0.0, 5.5, 6.0], 0)]
    boxes, kinds = [[1, 2, 3, 4], [0, 0, 5.5, 6]], ["square", "circle"]
    listed = [{"bbox": box, "category": kind} for box, kind in zip(boxes, kinds, strict=True)]
    for value in ({"bbox": boxes, "category": kinds}, listed, {"bbox": boxes, "category": [1, 0]}):
        assert check_objects(value, NAMES) == check_objects(json.dumps(value), NAMES) == expected
    assert check_objects([], NAMES) == []


@pytest.mark.parametrize(
    "value",
    [
        None,
        "no json",
        {"bbox": [[1, 2, 3, 4]]},
        {"bbox": [[1, 2, 3, 4]], "category": [0, 1]},
        *[{"bbox": [box], "category": [0]} for box in WRONG],
        {"bbox": [[1, 2, 3, 4]], "category": ["star"]},
        {"bbox": [[1, 2, 3, 4]], "category": [3]},
    ],
)
def test_other_values_are_invalid_records(value: object) -> None:
    with pytest.raises(InvalidRecord):
        check_objects(value, NAMES)


def test_classes_without_names_are_refused(task: Task, tmp_path: Path) -> None:
    objects = json.dumps([{"bbox": [1, 2, 3, 4], "category": 7}])
    rows = task.tables["train"].select(range(20)).map(lambda row: {"objects": objects}, remove_columns=["objects"])
    rows.select_columns(["image", "objects"]).to_parquet(tmp_path / "train.parquet")
    with pytest.raises(ValueError, match="'category'"):
        data.load(recipe.load("shapes-detect", [*TINY, f"data={tmp_path}"]))


def test_answers_are_boxes_in_pixels(task: Task) -> None:
    """A model that finds the first object of each picture, and one that finds nothing right."""
    batch = task.collate(task.splits["test"].__getitems__(range(8)), None)
    sure = torch.full((8, 1, 4), -10.0)
    boxes = torch.stack([found["boxes"][:1] for found in batch["labels"]])
    for index, found in enumerate(batch["labels"]):
        sure[index, 0, found["class_labels"][0]] = 10.0
    right = task.answer(None, SimpleNamespace(logits=sure, pred_boxes=boxes), batch)
    for (found, there), record in zip(right, task.splits["test"].__getitems__(range(8)), strict=True):
        left, top, width, height = record["objects"]["bbox"][0]
        assert there["boxes"][0] == pytest.approx([left, top, left + width, top + height], abs=1e-4)
        assert found["boxes"][0] == pytest.approx(there["boxes"][0]) and found["labels"] == there["labels"][:1]
    single = [pair for pair in right if len(pair[1]["labels"]) == 1]
    sums = {"loss": 8.0, "targets": 4.0}
    assert task.measure(sums, single) == pytest.approx({"loss": 2.0, "ap": 1.0, "ap50": 1.0, "ap75": 1.0})
    wrong = task.answer(None, SimpleNamespace(logits=sure.roll(1, -1), pred_boxes=boxes), batch)
    assert task.measure(sums, wrong)["ap"] < 0.2


def test_the_stock_model_has_our_loss(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one batch it is the loss of transformers itself, and in parts it adds up, as theirs does not."""
    torch.manual_seed(0)
    monkeypatch.setitem(STOCK["shapes-detect"], "decoder_layers", 2)
    model = build_stock(recipe.load("shapes-detect", TINY), task).eval()
    assert isinstance(model, DetrForObjectDetection) and model.config.id2label == dict(enumerate(NAMES))
    batch = task.collate(task.train.__getitems__(range(8)), None)
    given = {name: value for name, value in batch.items() if name != "_size"}
    own = DetrForObjectDetection.forward
    with torch.no_grad():
        whole = model(**given, num_items_in_batch=task.count(batch)).loss
        parts = [{name: value[part] for name, value in given.items()} for part in (slice(0, 3), slice(3, 8))]
        found = sum(model(**part, num_items_in_batch=task.count(batch)).loss for part in parts)
        model.loss_function = None
        del model.__dict__["_loss_function"]
        expected = own(model, **given).loss
    assert whole == pytest.approx(float(expected), rel=1e-5) and found == pytest.approx(float(whole), rel=1e-5)


def test_a_run_leaves_a_picture_and_a_detector_that_pipelines_take(tmp_path: Path) -> None:
    words = [*TINY, "text.evaluated=12", f"out={tmp_path / 'run'}"]
    finished = train(recipe.load("shapes-detect", words), "qkv train shapes-detect")
    assert {"loss", "ap", "ap50", "ap75"} == set(finished.record["metrics"]["test"])
    assert "objects.png" in finished.record["pictures"] and Image.open(finished.folder / "objects.png").width > 1000
    picture = check_image(finished.task.splits["test"][0]["image"])
    found = pipeline("object-detection", str(finished.folder))(picture, threshold=0.0)
    assert len(found) == finished.model.config.num_queries and found[0]["label"] in NAMES


def test_more_objects_than_queries_are_no_silence(tmp_path: Path) -> None:
    rows = []
    for place in range(30):
        Image.new("RGB", (40, 40), (place * 8, 0, 0)).save(tmp_path / f"{place}.png")
        boxes = [{"bbox": [at, 2, 5, 6], "category": "a"} for at in range(25 if place == 7 else 1)]
        rows.append(json.dumps({"image": f"{place}.png", "objects": boxes}))
    (tmp_path / "metadata.jsonl").write_text("\n".join(rows))
    words = ["leaked_records=1", "max_steps=1", "warmup_steps=0", "batch_size=2", f"out={tmp_path / 'run'}"]
    enough, shown = infer(str(tmp_path), words)
    assert enough.model.config["num_queries"] == 25 and shown["model.num_queries"].startswith("25 ")
    few, _ = infer(str(tmp_path), [*words, "model.num_queries=24"])
    with raises_sentence("7.png", "25 objects", "num_queries=24", "model.num_queries=25"):
        train(few, "")
    assert not (tmp_path / "run").exists()
