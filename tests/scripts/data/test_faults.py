"""Awkward files of other people: what stands in them is learned, or one sentence says why not; nothing is lost."""

import csv
import json
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from transformers import AutoTokenizer

from errors import raises_sentence
from own_runs import write_rows
from qkv.scripts.common.tables import print_table
from qkv.scripts.data.boxes import check_objects
from qkv.scripts.data.columns import Column, number_of
from qkv.scripts.data.formats.readers import IMAGES
from qkv.scripts.data.image_data import read_images, read_objects
from qkv.scripts.data.inference.own_recipe import infer
from qkv.scripts.data.loading import read, splits
from qkv.scripts.data.text_columns import read_corpus
from qkv.scripts.data.tokenization import ENCODER_TEMPLATE, MAKERS, load_tokenizer, tokenize, tokenizer_for
from qkv.scripts.data.validation import check_image
from qkv.scripts.prediction.generation import prepared
from qkv.scripts.tasks.speech_recognition import ctc_tokenizer
from recipes import recipe_of

LOOSE = ["leaked_records=1"]


def csv_file(path: Path, columns: list[str], rows: list[list[Any]]) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])
    return str(path)


def corpus_of(where: str, *words: str) -> Any:
    return read_corpus(infer(where, [*LOOSE, *words])[0])


def noise(path: Path, seed: int, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (24, 24, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, **options)


# Classes and numbers ---------------------------------------------------------------------------------------------------


CODES = (
    "007 042 100|1_1 11 12|3E2 300 5E1|1.1 1.10 1.2|1.10 1.20 1.30|nan inf ok|+1 1 2|-1 0 1|NA null None|"
    "TRUE FALSE True|١ 1 2|9007199254740993 9007199254740992|0x10 16 1e1"
)


@pytest.mark.costly(20)
@pytest.mark.parametrize("codes", [*map(str.split, CODES.split("|"))], ids=str)
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_classes_are_the_texts_that_stand_there(codes: list[str], ending: str, tmp_path: Path) -> None:
    rows = [[f"about {code!r} item {number}", code] for number in range(20) for code in codes]
    if ending == "csv":
        where = csv_file(tmp_path / "x.csv", ["text", "section"], rows)
    else:
        records = [{"text": text, "section": code} for text, code in rows]
        where = str(write_rows(tmp_path / f"x.{ending}", records))
    corpus = corpus_of(where, "text.label=section")
    assert set(corpus.names) == set(codes) and not corpus.numbers
    found = sum((Counter(own) for own in corpus.report["classes"].values()), Counter())
    assert found == dict.fromkeys(codes, 20) and corpus.invalid_records.skipped == []


@pytest.mark.parametrize("kind", [int, str])
def test_numbered_classes_are_in_order_and_rare_ones_are_not_lost(kind: Any, tmp_path: Path) -> None:
    rows = [{"text": f"text {number}", "label": kind(number % 12)} for number in range(260)]
    rows += [{"text": f"bad {number}", "label": kind(-1)} for number in range(4)]
    corpus = corpus_of(str(write_rows(tmp_path / "x.jsonl", rows)))
    assert corpus.names == [str(number) for number in range(-1, 12)] and corpus.invalid_records.skipped == []


@pytest.mark.parametrize("streaming", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_first_rows_do_not_decide(tmp_path: Path, *, streaming: bool) -> None:
    whole = [[f"text {number}", number % 5 + 1] for number in range(3300)]
    halves = [[f"half {number}", number % 5 + 0.5] for number in range(80)]
    scores = csv_file(tmp_path / "scores.csv", ["text", "score"], whole + halves)
    assert sum(map(len, corpus_of(scores).numbers.values())) == 3380
    rows = [{"text": f"item {n}", "label": n % 3 if n < 3300 else "3a", "note": None if n < 3300 else "late"}
            for n in range(3400)]  # fmt: skip
    groups = str(write_rows(tmp_path / "groups.jsonl", rows))
    assert corpus_of(groups).names == ["0", "1", "2", "3a"]
    assert [row["note"] for row in read(groups, streaming=streaming)][-1] == "late"


def test_long_numbers_keep_their_digits_beside_fractions(tmp_path: Path) -> None:
    rows = [{"text": f"a {n}", "id": 2**60 + n if n % 2 else 0.5} for n in range(6)]
    assert read(str(write_rows(tmp_path / "x.jsonl", rows)))["id"][:] == [str(row["id"]) for row in rows]
    rows = [{"text": f"a {n}", "id": 2**60 * (n % 2)} for n in range(6)]
    assert read(str(write_rows(tmp_path / "y.jsonl", rows)))["id"][:] == [row["id"] for row in rows]


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (pa.array([Decimal(f"{n}.25") for n in range(400)]), "regression"),
        (pa.array([n > 350 for n in range(400)]), "text-classification"),
        (pa.array([n // 350 for n in range(400)], pa.int8()), "text-classification"),  # one class in the first rows
        (pa.array(["good", "bad"] * 200).dictionary_encode(), "text-classification"),
    ],
)
def test_types_of_parquet(values: Any, task: str, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": [f"text {n}" for n in range(400)], "label": values}), path)
    recipe, inferred = infer(str(path), LOOSE)
    corpus = read_corpus(recipe)
    assert inferred["task"] == task and len(corpus.names) == (0 if task == "regression" else 2)


def test_types_of_parquet_files_are_widened(tmp_path: Path) -> None:
    for number, values in enumerate([[1, 2], [0.5, 2.5]]):
        rows = [{"text": f"a {number} {value}", "score": value} for value in values]
        write_rows(tmp_path / f"part-{number}.parquet", rows)
    assert read(str(tmp_path))["score"][:] == [1.0, 2.0, 0.5, 2.5]


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        (["1.10", "2.35", "12.00"], [1.1, 2.35, 12.0]),  # prices, which do not repeat
        (["1.5", "2.0", "1.5"] * 5, [1.5, 2.0, 1.5] * 5),
        (["1e-5", "2.5e-3"], [1e-5, 2.5e-3]),
        ([1, 2.5], [1.0, 2.5]),
        (["1.1", "1.10"], None),
        (["1e999", "1"], None),
        ([True, False], None),
        (["1", "two"], None),
        ([], None),
    ],
)
def test_numbers_are_columns_whose_spelling_says_no_more(values: list[Any], numbers: Any) -> None:
    assert Column("").add(values).is_numeric == (numbers is not None)
    assert numbers is None or list(map(number_of, values)) == numbers


@pytest.mark.parametrize("odd", ["n/a", "inf", "nan"])
def test_a_number_that_is_none_is_one_bad_record(odd: str, tmp_path: Path) -> None:
    rows = [[f"text {number}", number + 0.5] for number in range(50)] + [["odd", odd]]
    where = csv_file(tmp_path / "x.csv", ["text", "score"], rows)
    with raises_sentence("row 52", "score", odd, "bad_records"):
        corpus_of(where, "text.label=score", "model.problem_type=regression")


# Tasks -----------------------------------------------------------------------------------------------------------------


def several(folder: Path, ending: str) -> str:
    """Comments of none to three classes, as lists or as columns of 0 and 1."""
    names = ["toxic", "insult", "threat"]
    of_rows = [[name for place, name in enumerate(names) if n >> place & 1] for n in range(160)]
    if ending == "csv":
        flags = [[f"comment {n} of {n % 7}", *(int(name in own) for name in names)] for n, own in enumerate(of_rows)]
        return csv_file(folder / "x.csv", ["text", *names], flags)
    rows = [{"text": f"comment {n} of {n % 7}", "labels": own} for n, own in enumerate(of_rows)]
    return str(write_rows(folder / f"x.{ending}", rows))


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_several_classes_of_a_text(ending: str, tmp_path: Path) -> None:
    where = several(tmp_path, ending)
    recipe, inferred = infer(where, LOOSE)
    corpus = read_corpus(recipe)
    assert inferred["task"] == "multi-label" and {*corpus.names} == {"toxic", "insult", "threat"}
    counts = sum((Counter(own) for own in corpus.report["classes"].values()), Counter())
    assert counts == dict.fromkeys(corpus.names, 80) and corpus.invalid_records.skipped == []
    for text, row in zip(corpus.texts["test"], corpus.labels["test"], strict=True):
        number = int(text.split()[1])
        wanted = {"toxic": number & 1, "insult": number >> 1 & 1, "threat": number >> 2 & 1}
        assert dict(zip(corpus.names, row, strict=True)) == wanted
    assert infer(where, ["task=causal-lm"])[1]["task"] == "causal-lm"
    if ending == "csv":
        assert corpus_of(where, "text.label=insult").names == ["0", "1"]
        assert corpus_of(where, "text.label=insult,threat").names == ["insult", "threat"]


@pytest.mark.parametrize(
    ("columns", "words", "mentions"),
    [
        ({"marks": ["a", "b"]}, [], ("marks", "text.label=marks", "task=causal-lm")),
        ({"depth": 1.25, "width": 2.5}, [], ("depth, width", "text.label=depth", "task=causal-lm")),
        ({"score": 1.25, "price": 2.5}, [], ("price", "text.label=price")),
        ({"a": 1, "b": 2.5}, ["text.label=a,b"], ("text.label=a,b", "'a'")),
        ({"labels": [1, 0, 1]}, [], ("labels", "'1' twice")),
    ],
)
def test_what_may_be_learned_in_two_ways_is_a_question(
    columns: dict[str, Any], words: list[str], mentions: tuple[str, ...], tmp_path: Path
) -> None:
    def value(own: Any, row: int) -> Any:
        return own + row if isinstance(own, float) else own

    rows = [{"text": f"a text {n}", **{name: value(own, n) for name, own in columns.items()}} for n in range(60)]
    with raises_sentence(*mentions):
        corpus_of(str(write_rows(tmp_path / "x.jsonl", rows)), *words)


def test_tags_of_a_sentence_are_no_sets_of_classes(tmp_path: Path) -> None:
    rows = [{"sentence": f"Ada met {n}", "marks": ["B-PER", "O", "O"]} for n in range(40)]
    words = ["text.column=sentence", "text.label=marks", "architecture=QkvEncoderForTokenClassification"]
    recipe, inferred = infer(str(write_rows(tmp_path / "x.jsonl", rows)), words)
    assert inferred["task"] == "token-classification" and "problem_type" not in recipe.model.config


def test_answers_that_repeat_are_answers(tmp_path: Path) -> None:
    rows = [{"question": f"capital {number}?", "answer": f"It is {number % 10}."} for number in range(90)]
    where = str(write_rows(tmp_path / "qa.jsonl", rows))
    recipe, inferred = infer(where)
    assert inferred["task"] == "seq2seq" and (recipe.text.column, recipe.text.target) == ("question", "answer")
    assert infer(where, ["task=text-classification", "text.label=answer"])[0].text.label == "answer"
    assert infer(where, ["task=masked-lm"])[0].model.architecture == "QkvEncoderForMaskedLM"
    with raises_sentence("seqtoseq", "seq2seq"):
        infer(where, ["task=seqtoseq"])
    with raises_sentence("regression", "question", "answer"):
        infer(where, ["task=regression"])


# Text ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_texts_hold_no_control_tokens(kind: str, tmp_path: Path) -> None:
    texts = ["was <s>12</s> now", "<pad> and <mask>", "an <unk> one"]
    recipe = recipe_of(text={"tokenizer": kind, "vocab_size": 400})
    if kind == "words":
        with raises_sentence("'<mask>'", "text.tokenizer"):
            tokenizer_for(recipe, texts)
        words = tokenizer_for(recipe, ["was now"], ENCODER_TEMPLATE)
        (row,) = tokenize(words, ["was <mask> </s> now"])
        assert {*row[1:-1].tolist()} & {*words.all_special_ids} == {words.unk_token_id}
        return
    for needs in ((), ("mask",), ("bos",)):
        tokenizer = tokenizer_for(recipe, texts, ENCODER_TEMPLATE, needs)
        special = {*tokenizer.all_special_ids}
        for row, text in zip(tokenize(tokenizer, texts), texts, strict=True):
            assert not special & {*row[1:-1].tolist()}
            assert kind in ("wordpiece", "residues") or tokenizer.decode(row, skip_special_tokens=True) == text
    tokenizer = tokenizer_for(recipe, texts, ENCODER_TEMPLATE)
    tokenizer.save_pretrained(tmp_path)
    kept = AutoTokenizer.from_pretrained(tmp_path)
    assert kept(texts)["input_ids"] == [row.tolist() for row in tokenize(tokenizer, texts)]
    prompted = tokenizer_for(recipe, texts, needs=["bos"])
    stored = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=64), device="cpu")
    stored.generation_config = SimpleNamespace(max_new_tokens=4, max_length=20)
    source: Any = SimpleNamespace(tokenizer=prompted, task="text-generation", columns={"target": "x"}, model=stored)
    rows = prepared(source, texts, {})["input_ids"]
    assert (rows == prompted.bos_token_id).sum(1).tolist() == [1, 1, 1] and (rows[:, -1] == prompted.bos_token_id).all()
    masked = tokenizer_for(recipe, texts, ENCODER_TEMPLATE, ["mask"])
    masked.save_pretrained(tmp_path)
    loaded = load_tokenizer(str(tmp_path), 64)  # for a classifier that starts from a masked language model
    assert loaded(texts)["input_ids"] == [row.tolist() for row in tokenize(masked, texts)]
    assert masked("a <mask> b")["input_ids"].count(masked.mask_token_id) == 1  # as pipelines write it


def test_transcripts_hold_no_control_tokens() -> None:
    texts = ["say <pad> a|b", "</s> or <s>"]
    tokenizer = ctc_tokenizer(texts)
    for row, text in zip(tokenize(tokenizer, texts), texts, strict=True):
        assert not {0, 1, 2, 3} & {*row.tolist()} and tokenizer.decode(row.tolist(), group_tokens=False) == text


def test_classes_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("[red]", {":smile:": "[bold]a[/bold] :warning:"})
    said = capsys.readouterr().out
    assert ":smile:" in said and "[bold]a[/bold] :warning:" in said


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (b"text;label\nlong, and;good\nshort;bad\n", {}),
        ("sep=;\r\ntext;label\r\nlong, and;good\r\nshort;bad\r\n".encode("utf-8-sig"), {}),
        ("text\tlabel\nlong, and\tgood\nshort\tbad\n".encode("utf-16"), {}),
        ("\n\ntext|label\nlong, and|good\n\nshort|bad".encode("cp1252"), {"encoding": "cp1252"}),
        (b'text,label\r\n"long, and",good\r\n"short","bad"\r\n', {}),
        (b'text,label,,\r\n"long, and",good,,\r\nshort,bad\r\n,,,\r\n', {}),  # columns that a spreadsheet left
        (b',text,label\n0,"long, and",good\n1,short,bad\n', {}),  # the index of pandas
        (b"text\tlabel\r\nlong, and\tgood\r\nshort\tbad\r\n", {}),
    ],
)
def test_tables_as_programs_write_them(content: bytes, options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(content)
    for streaming in (False, True):
        rows = list(read(str(tmp_path / "x.csv"), streaming=streaming, **options))
        assert [(row["text"], row["label"]) for row in rows] == [("long, and", "good"), ("short", "bad")]


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("x.tsv", '"Great" film\t1\n"Never again\t0\nsays "no"\t1\n', ['"Great" film', '"Never again', 'says "no"']),
        ("x.tsv", '"two\nlines"\t1\n"a ""word"""\t0\nplain\t1\n', ["two\nlines", 'a "word"', "plain"]),
        ("x.csv", '"two\nlines",1\n"a ""word""",0\nplain,1\n', ["two\nlines", 'a "word"', "plain"]),
    ],
)
def test_quotes_of_tabs_are_letters_where_they_do_not_close(
    name: str, content: str, texts: list[str], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(f"text{content.split('1')[0][-1]}label\n{content}")
    rows = read(str(tmp_path / name))
    assert rows["text"][:] == texts and rows["label"][:] == ["1", "0", "1"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x.csv", "text,label\na,1\nb,2\n\ufefftext,label\nc,1\n", "the header again"),
        ("x.jsonl", '{"text": "a"}\n{"text": "b", "text": "c"}\n{"text": "d"}\n', "'text' twice"),
        ("x.csv", "text,label\na,1\nb,2,3\nc,1\n", "3 fields"),
    ],
)
def test_a_bad_line_is_one_bad_record(name: str, content: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    (found,) = filter(None, read(str(tmp_path / name))["_invalid"])
    assert reason in found


def test_files_are_joined_by_the_names_of_their_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\none,x\n", encoding="utf-8-sig")
    (tmp_path / "b.csv").write_text("label;note;text\ny;new;two\n", encoding="utf-16")
    rows = read(str(tmp_path))
    assert [(row["text"], row["label"], row["note"]) for row in rows] == [("one", "x", None), ("two", "y", "new")]


def test_utf_16_without_its_mark_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes("text,label\nKäse,1\n".encode("utf-16-le"))
    with raises_sentence("encoding", "utf-16-le"):
        read(str(tmp_path / "x.csv"))
    assert read(str(tmp_path / "x.csv"), encoding="utf-16-le")["text"][:] == ["Käse"]


def test_decimal_commas_and_dates(tmp_path: Path) -> None:
    rows = [[f"house {n}", f"{n},{n % 10}5", f"{n % 9 + 1}.1.2026"] for n in range(1, 81)]
    path = tmp_path / "x.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=";").writerows([["text", "price", "day"], *rows])
    corpus = corpus_of(str(path))
    assert sorted(sum(corpus.numbers.values(), [])) == sorted(float(row[1].replace(",", ".")) for row in rows)
    assert list(map(number_of, ["1,5", "2", "-0,125"])) == [1.5, 2.0, -0.125]
    assert not Column("").add(["1,234", "2,500"]).is_numeric
    path.write_text("text;price\n" + "".join(f"a {n};1,{n}\n" for n in range(100, 140)))
    with raises_sentence("'1,100'", "price"):
        corpus_of(str(path), "text.label=price", "model.problem_type=regression")


def test_the_encoding_and_the_documents_are_those_of_the_recipe(tmp_path: Path) -> None:
    lines = [f"Käse {number}" for number in range(40)]
    (tmp_path / "x.txt").write_bytes("\n".join(lines).encode("latin-1"))
    texts = corpus_of(str(tmp_path / "x.txt"), "encoding=latin-1", "documents=line").texts
    assert sorted(text for own in texts.values() for text in own) == sorted(lines)


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "disk"])
def test_fields_of_objects_are_columns(ending: str, tmp_path: Path) -> None:
    rows = [{"translation": {"en": f"line {n}", "fr": f"ligne {n}"}, "meta": {"id": n}, "odd": [1, None]}
            for n in range(40)]  # fmt: skip
    where = str(write_rows(tmp_path / f"x.{ending}", rows))
    recipe = infer(where, ["text.column=translation.en", "text.target=translation.fr"])[0]
    corpus = read_corpus(recipe)
    assert set(corpus.targets["test"]) < {f"ligne {n}" for n in range(40)}
    assert read(where, columns=["meta.id"])["meta.id"][:] == list(range(40))
    if ending == "jsonl":
        with raises_sentence("translation.de"):
            read(where, columns=["translation.de"])


# Images and boxes ------------------------------------------------------------------------------------------------------


def test_pictures_of_any_ending_are_rows_and_others_are_said(tmp_path: Path) -> None:
    written = {".jpg", ".webp", ".bmp", ".tiff", ".gif", ".ppm", ".tga", ".jp2", ".ico", ".png", ".pcx", ".avif"}
    assert written <= {*IMAGES}
    for place, ending in enumerate(sorted(written)):
        for number in range(3):
            noise(tmp_path / ("cat" if place % 2 else "fish") / f"{number}{ending}", 100 * place + number)
    (tmp_path / "cat" / "notes.docx").touch()
    data = read_images(infer(str(tmp_path), LOOSE)[0])
    assert data.labels == ["cat", "fish"] and len(data.train) + sum(map(len, data.splits.values())) == 36
    assert data.read.left_out == {".docx": 1}


def test_a_table_of_pictures_is_no_table_of_texts(tmp_path: Path) -> None:
    for number in range(30):
        noise(tmp_path / f"{number}.webp", number)
    rows = [[f"{number}.webp", "cat" if number % 2 else "dog"] for number in range(30)]
    where = csv_file(tmp_path / "metadata.csv", ["file_name", "label"], rows)
    assert infer(where)[1]["task"] == "image-classification"


@pytest.mark.parametrize("names", [("train", "test"), ("train", "car"), ("test", "default"), ("dev", "val", "cat")])
def test_folders_of_classes_may_be_called_as_splits_are(names: tuple[str, ...], tmp_path: Path) -> None:
    for place, name in enumerate(names):
        for number in range(10):
            noise(tmp_path / name / f"test_{number}.png", 10 * place + number)
    if names == ("train", "test"):  # splits without classes, and nobody can tell
        assert splits(str(tmp_path)) == ["train", "test"] and "label" not in read(str(tmp_path)).features
        return
    assert splits(str(tmp_path)) == ["train"]
    assert read_images(infer(str(tmp_path), LOOSE)[0]).labels == sorted(names)


def coco(folder: Path, count: int = 30, orientation: int = 1, **image: Any) -> Path:
    """Photographs of 60 x 40 stored pixels with a red box in their own frame, as COCO has them."""
    folder.mkdir(parents=True, exist_ok=True)
    images, annotations = [], []
    for n in range(count):
        pixels = np.full((40, 60, 3), 230, np.uint8)
        pixels[5:15, 40:55] = (200, 0, 0)
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.fromarray(pixels + np.uint8(n % 20)).save(folder / f"{n}.png", exif=exif)
        images.append({"id": n, "file_name": f"{n}.png", "width": 60, "height": 40} | image)
        annotations.append({"id": n, "image_id": n, "category_id": 1, "bbox": [40, 5, 15, 10], "iscrowd": 0})
        annotations.append({"id": count + n, "image_id": n, "category_id": 1, "bbox": [0, 0, 60, 40], "iscrowd": 1})
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "red"}]}
    (folder / "annotations.json").write_text(json.dumps(content))
    return folder


def objects_of(where: Any, test_size: float = 0.1) -> Any:
    recipe = infer(str(where), [*LOOSE, "bad_records=0.2"])[0]
    return read_objects(replace(recipe, data=replace(recipe.data, test_size=test_size)))


@pytest.mark.parametrize("orientation", [1, 5, 6, 7, 8])
@pytest.mark.parametrize("test_size", [0.1, 1.0])
def test_boxes_are_where_the_photograph_shows_them(orientation: int, test_size: float, tmp_path: Path) -> None:
    data = objects_of(coco(tmp_path / "coco", orientation=orientation), test_size)
    row = data.tables["test"][0]
    assert test_size < 1 or len(data.tables["test"]) == 30
    (((left, top, width, height), _),) = check_objects(row["objects"], data.labels)
    image = np.asarray(check_image(row["image"]))
    assert image.shape[:2] == ((60, 40) if orientation >= 5 else (40, 60))
    inside = image[int(top) : int(top + height), int(left) : int(left + width)].reshape(-1, 3).mean(0)
    assert inside[0] > 190 and inside[1:].max() < 30
    assert data.invalid_records.skipped == []


def test_a_size_of_another_image_is_a_bad_record(tmp_path: Path) -> None:
    with raises_sentence("60 x 40", "80 x 30"):
        objects_of(coco(tmp_path / "coco", width=80, height=30))
    for orientation in (2, 3, 4):  # both frames have this size
        with raises_sentence(f"EXIF orientation {orientation}"):
            objects_of(coco(tmp_path / "coco", orientation=orientation))


@pytest.mark.parametrize("box", [[40, 5, 55, 15], [0.79, 0.25, 0.25, 0.25], [-20, 0, 30, 10], [40, 5, 0, 10]])
def test_boxes_of_other_forms_are_bad_records(box: list[float], tmp_path: Path) -> None:
    coco(tmp_path / "x")
    (tmp_path / "x" / "annotations.json").unlink()
    rows = [{"image": f"{n}.png", "objects": [{"bbox": box, "category": "red"}]} for n in range(30)]
    write_rows(tmp_path / "x" / "metadata.jsonl", rows)
    with raises_sentence("objects", "[left, top, width, height] in pixels"):
        objects_of(tmp_path / "x")


def test_paths_are_joined_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    coco(Path("coco"))
    for where in ("coco", "./coco", "coco/annotations.json", str(tmp_path / "coco")):
        assert len(objects_of(where).tables["train"]) > 20
    (tmp_path / "coco" / "annotations.json").rename(tmp_path / "instances_coco.json")
    assert len(objects_of("instances_coco.json").tables["train"]) > 20
    paths = read("instances_coco.json")["image"][:]
    assert all(Path(image["path"]).is_absolute() for image in paths)


def test_annotations_without_their_image_are_said(tmp_path: Path) -> None:
    folder = coco(tmp_path / "coco")
    content = json.loads((folder / "annotations.json").read_text())
    content["annotations"].append({"image_id": 99, "category_id": 1, "bbox": [1, 1, 5, 5]})
    content["images"].append({"id": 50, "file_name": "gone.png", "width": 60, "height": 40})
    (folder / "annotations.json").write_text(json.dumps(content))
    reasons = [line["reason"] for line in objects_of(folder).invalid_records.skipped]
    assert len(reasons) == 2 and "'gone.png'" in reasons[0] and "99" in reasons[1]
