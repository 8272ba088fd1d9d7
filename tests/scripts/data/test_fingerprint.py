"""Fingerprints are of the content: where it lies, and in which pieces, changes nothing."""

from pathlib import Path

from datasets import ClassLabel, Dataset, Features, Image, Value, concatenate_datasets

from qkv.scripts.tasks.task import Task, fingerprint_of
from tiny_training import task_of

WORDS = {"text": [f"word {n}" for n in range(2500)], "n": [None, *range(2499)]}


def task(train: object, **splits: object) -> Task:
    return task_of(train, splits)


def of(train: object) -> str:
    return fingerprint_of(task(train))


def test_a_table_is_known_by_its_rows(tmp_path: Path) -> None:
    whole = Dataset.from_dict(WORDS)
    whole.save_to_disk(tmp_path / "saved")
    parts = concatenate_datasets([whole.select(range(1100)), whole.select(range(1100, 2500))])
    again = [Dataset.load_from_disk(tmp_path / "saved"), parts, whole.select(list(range(2500)))]
    assert {of(one) for one in again} == {of(whole)}
    others = [whole.select(range(2499)), whole.select([1, 0, *range(2, 2500)]), whole.remove_columns("n")]
    assert len({of(one) for one in (whole, *others)}) == 4
    evaluated = [fingerprint_of(task(whole, test=one)) for one in others]
    assert len({of(whole), *evaluated, fingerprint_of(task(whole, validation=others[0]))}) == 5


def test_pictures_in_files_are_known_by_names_and_contents(tmp_path: Path) -> None:
    def table(folder: str, content: bytes) -> Dataset:
        path = tmp_path / folder / "cat" / "1.png"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        features = Features({"image": Image(decode=False), "label": ClassLabel(names=["cat"]), "n": Value("int8")})
        return Dataset.from_dict(
            {
                "image": [{"path": str(path), "bytes": None}, {"path": None, "bytes": b"x"}],
                "label": [0, 0],
                "n": [1, 2],
            },
            features=features,
        )

    first = of(table("a", b"12345"))
    assert first == of(table("b", b"12345")) and first not in (of(table("c", b"123456")), of(table("d", b"12346")))
