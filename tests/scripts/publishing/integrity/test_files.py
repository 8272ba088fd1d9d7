"""Files against the manifest: each check by itself; what accidents and attackers do: test_verify.py."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tiny
from published import CODE, change_json, forge, forget_releases, ours, published, shards
from qkv import QkvEncoderDecoderForConditionalGeneration
from qkv.scripts.publishing.export.tested_releases import TESTED, UNSTATED, spelled
from qkv.scripts.publishing.integrity.files import Row, config_findings, file_rows, flat
from qkv.scripts.publishing.integrity.manifest import MANIFEST, read_manifest


def found(folder: Path, **options: Any) -> dict[str, list[str]]:
    """{check: what it found} without those that found nothing."""
    rows = list(file_rows(folder, read_manifest(folder), **options))
    assert [row.check for row in rows] == ["files", "code", "weight files", "tensors", "config"]
    return {row.check: row.findings for row in rows if row.findings}


def test_an_untouched_folder_passes_and_says_what_was_looked_at(folder: Path) -> None:
    rows = {row.check: row for row in file_rows(folder, read_manifest(folder))}
    assert {row.result for row in rows.values()} == {"passed"}
    assert rows["tensors"].detail == f"36 in {len(shards(folder))} files"
    code = [path.stat().st_size for path in folder.glob("*.py")]
    assert rows["code"].detail == f"2 files, {sum(code):,} bytes"
    assert rows["config"].detail == "config.json, generation_config.json"


def test_releases_of_transformers_are_those_that_the_code_states(tmp_path: Path) -> None:
    folder = published(ours(), tmp_path / "hub")
    path, finding = folder / MANIFEST, "the code was tested with transformers {}, the manifest says {}"
    whole, tested = json.loads(path.read_text()), spelled(TESTED)
    change_json(path, transformers=UNSTATED)
    assert found(folder) == {"code": [finding.format(tested, spelled(UNSTATED))]}
    path.write_text(json.dumps({name: value for name, value in whole.items() if name != "transformers"}))
    assert found(folder) == {"code": [finding.format(tested, spelled(UNSTATED))]}
    forget_releases(folder)
    earlier = json.loads(path.read_text())
    assert earlier.pop("transformers") == UNSTATED and found(folder) == {}
    path.write_text(json.dumps(earlier))
    assert found(folder) == {}
    (folder / CODE).write_text("x = 1\n")
    forge(folder)
    assert found(folder) == {}
    change_json(path, transformers=TESTED)
    assert found(folder) == {"code": [finding.format("none", tested)]}


def test_a_row_is_one_word() -> None:
    assert (
        Row("a").result == "passed"
        and Row("a", ["b"]).result == "FAILED"
        and Row("a", skipped=True).result == "not run"
        and Row("a", warns=True).result == "warning"
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda folder: (folder / "vocab.txt").unlink(), {"files": ["vocab.txt is missing"]}),
        (
            lambda folder: (folder / "vocab.txt").write_text("a"),
            {"files": ["vocab.txt has 1 bytes, the manifest says 4"]},
        ),
        (lambda folder: (folder / "vocab.txt").write_text("a\nc\n"), {"files": ["vocab.txt has other content"]}),
        (lambda folder: (folder / "merges.txt").write_text(""), {"files": ["merges.txt is not in the manifest"]}),
        (
            lambda folder: (folder / "pytorch_model.bin").touch(),
            {"files": ["pytorch_model.bin is not in the manifest"]},
        ),
        (
            lambda folder: (folder / "adapter_config.json").touch(),
            {"files": ["adapter_config.json is not in the manifest"]},
        ),
        (lambda folder: (folder / "sitecustomize.py").touch(), {"code": ["sitecustomize.py is not in the manifest"]}),
        (lambda folder: (folder / "README.md").unlink(), {"files": ["README.md is missing"]}),
        (lambda folder: (folder / "NOTES.md").touch(), {}),
        (lambda folder: (folder / ".gitattributes").touch(), {}),
    ],
    ids=["missing", "cut", "edited", "added", "pickle", "adapter", "code", "card", "document", "hidden"],
)
def test_files(folder: Path, change: Callable[[Path], Any], expected: dict[str, list[str]]) -> None:
    change(folder)
    assert found(folder) == expected


def test_a_link_to_a_folder_is_found(folder: Path, tmp_path: Path) -> None:
    """Loading reads chat templates through it, which no hash in the manifest is of."""
    (tmp_path / "elsewhere").mkdir()
    (folder / "additional_chat_templates").symlink_to(tmp_path / "elsewhere")
    assert found(folder)["files"] == ["additional_chat_templates is not in the manifest"]


def test_only_the_files_that_matter_are_looked_at(folder: Path) -> None:
    (folder / CODE).unlink()
    (folder / "more.py").touch()
    change_json(folder / "generation_config.json", top_k=3)
    assert found(folder, reads=lambda name: name.endswith(".safetensors")) == {}
    assert set(found(folder)) == {"files", "code", "config"}


def test_an_index_that_leaves_out_a_tensor(folder: Path) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    file = index["weight_map"].pop("model.norm.weight")
    change_json(path, **index)
    assert found(folder)["weight files"] == [f"model.norm.weight is in {file}, where the index does not have it"]


def test_fields_of_parts_come_with_their_names(tmp_path: Path) -> None:
    model = QkvEncoderDecoderForConditionalGeneration(tiny.encoder_decoder("deep"))
    folder = published(model, tmp_path / "translator")
    config = json.loads((folder / "config.json").read_text())
    config["decoder"]["norm_eps"] = 0.5
    del config["encoder"]["hidden_act"]
    change_json(folder / "config.json", **config, spare=[])
    assert found(folder)["config"] == [
        "config.json: field decoder.norm_eps is 0.5, the manifest says 1e-05",
        "config.json: field encoder.hidden_act is missing, the manifest says 'gelu'",
        "config.json: field spare is [], the manifest says nothing",
    ]


def test_a_config_that_is_none(folder: Path) -> None:
    (folder / "config.json").write_text("[]")
    assert found(folder)["config"] == [f"{folder / 'config.json'} is not a JSON object; download it again"]


def test_true_is_not_one() -> None:
    assert dict(flat({"a": {"b": {"c": 1}, "d": {}}})) == {"a.b.c": 1, "a.d": {}}
    assert config_findings({"f": {"a": True}}, {"f": {"a": 1}}) == ["f: field a is 1, the manifest says True"]
