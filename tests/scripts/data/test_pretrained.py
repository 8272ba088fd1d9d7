"""A pretrained model brings its architecture, length, head, classes, tokenizer and processors."""

import json
from pathlib import Path

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, Value
from PIL import Image
from transformers import WhisperFeatureExtractor

import own_runs
import qkv
import stock_folders
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.data.own_tables import labels_of
from qkv.scripts.data.pretrained import is_regression, pretrained_classes
from qkv.scripts.recipes.schema import Recipe
from qkv.scripts.tasks import registry
from qkv.scripts.tasks.task import Task
from recipes import recipe_of
from sine_waves import recordings

CTC = ["architecture=QkvAudioEncoderForCTC", "model.conv_strides=[2,1]", "holdout=0.25"]


def recipes(folder: Path, kind: str, init: Path, *words: str) -> tuple[Recipe, Recipe]:
    """The recipes that are inferred of rows without a pretrained model, and with one."""
    table = str(own_runs.data(kind, folder))
    return infer(table, words)[0], infer(table, [*words, f"init={init}"])[0]


def test_a_head_that_is_there_keeps_its_pooling_and_length(tmp_path: Path) -> None:
    new, started = recipes(tmp_path, "classes", stock_folders.bert(tmp_path / "bert"), "text.length=40")
    assert new.model.config["pooling"] == "mean" and started.model.config == {}
    assert started.text.length == 40, "what is typed stays"
    assert started.optimization.learning_rate == pytest.approx(new.optimization.learning_rate / 10)
    guessed = infer(str(tmp_path / "classes.jsonl"), [f"init={tmp_path / 'bert'}", "model.pooling=mean"])[0]
    assert guessed.text.length == stock_folders.POSITIONS and guessed.model.config == {"pooling": "mean"}
    new, started = recipes(tmp_path, "classes", stock_folders.masked_bert(tmp_path / "masked"))
    assert started.model.config["pooling"] == "mean" and "hidden_size" not in started.model.config
    assert started.model.architecture == new.model.architecture


@pytest.mark.parametrize(
    ("kind", "made", "head"),
    [
        ("classes", "gpt2", "DecoderForSequenceClassification"),
        ("texts", "gpt2", "DecoderForCausalLM"),
        ("texts", "bert", "EncoderForMaskedLM"),
        ("tags", "bert", "EncoderForTokenClassification"),
        ("images", "vit", "ImageEncoderForImageClassification"),
        ("images", "bert", "ImageEncoderForImageClassification"),  # which a training refuses
    ],
)
def test_the_architecture_is_that_of_the_pretrained_family(kind: str, made: str, head: str, tmp_path: Path) -> None:
    _, started = recipes(tmp_path, kind, getattr(stock_folders, made)(tmp_path / made))
    assert started.model.architecture == f"Qkv{head}"


def test_an_architecture_that_is_asked_for_gets_the_fields_that_it_has(tmp_path: Path) -> None:
    recipe, _ = infer(str(own_runs.data("classes", tmp_path)), ["architecture=QkvDecoderForSequenceClassification"])
    assert recipe.model.config["hidden_size"] == 128 and "pooling" not in recipe.model.config
    odd, _ = infer(str(tmp_path / "classes.jsonl"), ["architecture=QkvNothing"])
    assert odd.model.config["pooling"] == "mean"


def pretrained(folder: Path, head: str, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    model_class = getattr(qkv, f"Qkv{head}")
    values = {"architectures": [model_class.__name__], "model_type": model_class.config_class.model_type}
    values["id2label"] = {str(number): name for number, name in enumerate(names)}
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def images(folder: Path, *names: str) -> str:
    """A folder of images for each class."""
    for name in names:
        (folder / name).mkdir(parents=True)
        for number in range(20):
            pixels = np.random.default_rng((number, *name.encode())).integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return str(folder)


def task_of(where: str, *words: str) -> Task:
    return registry.load(infer(where, words)[0])


def saved(task: Task, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    task.processor.save_pretrained(folder)
    return folder


def test_classes_are_those_of_a_head_that_knows_all(tmp_path: Path) -> None:
    folder = str(pretrained(tmp_path, "EncoderForSequenceClassification", "no", "yes", "maybe"))
    assert pretrained_classes(folder, ["never", "no"]) == ["never", "no"] == pretrained_classes(None, ["never", "no"])
    assert pretrained_classes(folder, ["no"], "ObjectDetection") == ["no"]
    types = Features({"text": Value("string"), "label": ClassLabel(names=["maybe", "no"])})
    table = {"train": Dataset.from_dict({"text": list("abc"), "label": [0, 1, 0]}, features=types)}
    labels = {"train": ["maybe", "no", "maybe"]}
    assert labels_of(table, recipe_of(init=folder), "label") == (labels, ["no", "yes", "maybe"])
    assert labels_of(table, recipe_of(), "label") == (labels, ["maybe", "no"])
    assert not is_regression(folder) and not is_regression(None)
    assert is_regression(str(pretrained(tmp_path, "EncoderForSequenceClassification", "LABEL_0")))


def test_images_get_the_numbers_of_the_pretrained_classes(tmp_path: Path) -> None:
    where = images(tmp_path / "own", "cat", "dog")
    init = pretrained(tmp_path / "init", "ImageEncoderForImageClassification", "dog", "fox", "cat")
    first = task_of(where)
    first.processor.image_mean = [0.1, 0.2, 0.3]
    task = task_of(where, f"init={saved(first, init)}")
    assert task.processor.image_mean == (0.1, 0.2, 0.3)
    assert task.labels == ["dog", "fox", "cat"] and task.data.report["classes"]["test"] == {"cat": 2, "dog": 2}
    rows = task.data.splits["test"]
    folders = [Path(row["image"]["path"]).parent.name for row in rows]
    assert [task.labels[row["label"]] for row in rows] == folders and set(folders) == {"cat", "dog"}


def test_recordings_are_written_with_the_pretrained_characters(tmp_path: Path) -> None:
    first = task_of(str(recordings(tmp_path / "one")), *CTC)
    init = saved(first, pretrained(tmp_path / "init", "AudioEncoderForCTC"))
    task = task_of(str(recordings(tmp_path / "two")), *CTC, f"init={init}")
    assert task.tokenizer.get_vocab() == first.tokenizer.get_vocab()
    for table in (tmp_path / "two").rglob("*.jsonl"):
        table.write_text(table.read_text().replace("low", "löw"))
    with pytest.raises(ValueError, match="does not know the character 'ö'"):
        task_of(str(tmp_path / "two"), *CTC, f"init={init}")


def test_boxes_get_the_numbers_of_the_pretrained_classes(tmp_path: Path) -> None:
    images(tmp_path / "own", "all")
    objects = [[{"bbox": [1, 2, 5, 6], "category": ("ship", "buoy")[number % 2]}] for number in range(20)]
    lines = [json.dumps({"image": f"all/{number}.png", "objects": own}) for number, own in enumerate(objects)]
    (tmp_path / "own" / "train.jsonl").write_text("\n".join(lines))
    first = task_of(str(tmp_path / "own"))
    first.processor.image_mean = [0.1, 0.2, 0.3]
    init = saved(first, pretrained(tmp_path / "init", "DetectionForObjectDetection", "ship", "gull", "buoy"))
    assert first.labels == ["buoy", "ship"]
    task = task_of(str(tmp_path / "own"), f"init={init}")
    assert task.labels == ["ship", "gull", "buoy"] and task.processor.image_mean == (0.1, 0.2, 0.3)


def test_captions_are_read_by_the_pretrained_processor(tmp_path: Path) -> None:
    where = [str(own_runs.data("captions", tmp_path / f"{seed}", seed=seed)) for seed in (0, 1)]
    first = task_of(where[0], "text.vocab_size=600")
    first.processor.image_processor.image_mean = [0.1, 0.2, 0.3]
    init = saved(first, pretrained(tmp_path / "init", "DualEncoderModel"))
    own, task = (task_of(where[1], "text.vocab_size=600", *words).processor for words in ([], [f"init={init}"]))
    known, others = first.processor.tokenizer.get_vocab(), own.tokenizer.get_vocab()
    assert task.tokenizer.get_vocab() == known != others and task.image_processor.image_mean == (0.1, 0.2, 0.3)


def test_features_of_another_kind_are_refused(tmp_path: Path) -> None:
    init = pretrained(tmp_path / "init", "SpeechEncoderDecoderForSpeechSeq2Seq")
    WhisperFeatureExtractor().save_pretrained(init)
    with pytest.raises(ValueError, match="WhisperFeatureExtractor"):
        task_of(str(recordings(tmp_path / "own")), "holdout=0.25", f"init={init}")
