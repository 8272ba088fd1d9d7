"""Every corruption is found, with the name of what was changed, and nothing is found in what was not."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

import qkv
from endpoint import Answers, Client
from loopback.process import LoopbackHub
from published import CODE, change_json, change_tensors, forge, forget_releases, ours, published, shards
from qkv.scripts.publishing.export.tested_releases import TESTED, UNSTATED, untested
from qkv.scripts.publishing.integrity import verification as module
from qkv.scripts.publishing.integrity.files import Row
from qkv.scripts.publishing.integrity.load_paths import load_rows
from qkv.scripts.publishing.integrity.manifest import IntegrityError, identity, read_manifest
from qkv.scripts.publishing.integrity.verification import Report, checks, examine, verify

INDEX = "model.safetensors.index.json"
# Two weights of one shape, in one file.
ONE, OTHER = "model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.q_proj.weight"


def holding(folder: Path, *names: str) -> Path:
    """The shard that holds these tensors."""
    for path in shards(folder):
        with safe_open(path, framework="pt") as file:
            if set(names) <= set(file.keys()):
                return path
    raise AssertionError(f"{names} are not in one shard")


def flip_bit(folder: Path) -> None:
    """One bit of one number: the lowest of the last tensor of the last shard."""
    path = shards(folder)[-1]
    data = bytearray(path.read_bytes())
    data[-4] ^= 1
    path.write_bytes(data)


def last_tensor(folder: Path) -> str:
    path = shards(folder)[-1]
    with safe_open(path, framework="pt") as file:
        names = file.offset_keys()
    return str(list(names)[-1])


def flip_bit_in_header(folder: Path) -> None:
    path = shards(folder)[0]
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)


def swap(folder: Path) -> None:
    def change(tensors: dict[str, Any]) -> None:
        tensors[ONE], tensors[OTHER] = tensors[OTHER], tensors[ONE]

    change_tensors(holding(folder, ONE, OTHER), change)


def swap_and_hide(folder: Path) -> None:
    swap(folder)
    forge(folder)


def lose_shard(folder: Path) -> None:
    shards(folder)[1].unlink()


def cut_shard(folder: Path) -> None:
    path = shards(folder)[1]
    path.write_bytes(path.read_bytes()[:-7])


def leave_weights(folder: Path) -> None:
    """What a save in one file leaves behind under a later one in shards: transformers would load it, silently."""
    model = ours(seed=1)
    save_file({name: tensor.clone() for name, tensor in model.state_dict().items()}, folder / "model.safetensors")


def add_shard(folder: Path) -> None:
    save_file({"spare": ours().model.norm.weight.detach()}, folder / "model-00009-of-00009.safetensors")


def point_elsewhere(folder: Path) -> None:
    name = f'"{ONE}": "{holding(folder, ONE).name}"'
    other = next(path.name for path in shards(folder) if path != holding(folder, ONE))
    text = (folder / INDEX).read_text()
    assert name in text
    (folder / INDEX).write_text(text.replace(name, f'"{ONE}": "{other}"'))


def lose_manifest(folder: Path) -> None:
    (folder / "qkv_manifest.json").unlink()


SWAPPED = f"tensor {ONE} has other content, tensor {OTHER} has other content"
CORRUPTIONS: list[tuple[Callable[[Path], None], tuple[str, ...]]] = [
    (flip_bit, ("{shard-1} has other content", "tensor {last} has other content")),
    (flip_bit_in_header, ("{shard0} has other content", "{shard0} is cut short or damaged")),
    (swap, ("has other content", SWAPPED)),
    (swap_and_hide, (f"says: tensors: {SWAPPED}",)),
    (lose_shard, ("{shard1} is missing", "is half downloaded: {shard1}")),
    (cut_shard, ("{shard1} has ", "{shard1} is cut short or damaged")),
    (leave_weights, ("model.safetensors is not in the manifest", f"has both model.safetensors and {INDEX}")),
    (add_shard, ("files: model-00009-of-00009.safetensors is not in the manifest",)),
    (point_elsewhere, (f"{INDEX} has", f"has no tensor {ONE}, which {INDEX} says it has")),
    (lose_manifest, ("has no qkv_manifest.json to compare it with",)),
]


@pytest.mark.parametrize(("corrupt", "words"), CORRUPTIONS, ids=[case[0].__name__ for case in CORRUPTIONS])
def test_a_corruption_is_named(corrupt: Callable[[Path], None], words: tuple[str, ...], folder: Path) -> None:
    names = {f"shard{index}": shards(folder)[index].name for index in (0, 1, -1)} | {"last": last_tensor(folder)}
    corrupt(folder)
    with pytest.raises(IntegrityError) as caught:
        verify(folder)
    for each in words:
        for name, value in names.items():
            each = each.replace(f"{{{name}}}", value)
        assert each in str(caught.value)


def test_nothing_is_found_in_the_untouched_folder(folder: Path) -> None:
    """By all ways of loading in this process; the other process: tests/scripts/test_verify.py."""
    rows = list(checks(folder, None, trusted=False))
    assert [row for row in rows if row.findings] == []
    assert [row.check for row in rows if row.skipped] == ["remote code, AutoModelForCausalLM"]


def test_what_was_corrupted_is_not_loaded(folder: Path) -> None:
    flip_bit(folder)
    checks = ["manifest", "files", "code", "weight files", "tensors", "config"]
    assert [row.check for row in examine(folder).rows] == checks


def test_a_config_that_names_a_kernel_is_not_loaded(folder: Path) -> None:
    """Whoever publishes such a config can also write its manifest."""
    change_json(folder / "config.json", attn_implementation="evil/kernel")
    forge(folder)
    report = examine(folder)
    assert [row.check for row in report.rows if row.findings] == ["config"]
    assert 'attn_implementation="evil/kernel"' in report.sentence


def test_a_wrong_buffer_after_loading_is_named(native: Path, tmp_path: Path) -> None:
    """The config is edited, and the manifest's hashes of files with it: only what loading makes of it tells."""
    folder = Path(shutil.copytree(native, tmp_path / "hub"))
    rope = {"rope_theta": 20000.0, "rope_type": "default"}
    change_json(folder / "config.json", rope_parameters=rope)
    forge(folder)
    rows = {row.check: row for row in checks_here(folder)}
    for name in ("LlamaForCausalLM", "AutoModelForCausalLM", "AutoModelForCausalLM, bfloat16"):
        assert rows[name].findings == [
            "buffer model.rotary_emb.inv_freq has other content",
            "buffer model.rotary_emb.original_inv_freq has other content",
        ]


def checks_here(folder: Path) -> list[Any]:
    """The rows but for those of another process."""
    found = []
    for row in load_rows(folder, read_manifest(folder), trusted=False):
        if row.check.startswith(("without qkv", "remote code")):
            break
        found.append(row)
        if row.check.endswith("bfloat16"):
            break
    return found


def test_buffers_are_right_in_the_untouched_folder(native: Path) -> None:
    rows = checks_here(native)
    assert len(rows) == 6 and [row for row in rows if row.findings] == []


def test_another_model_than_expected_is_named(original: Path, tmp_path: Path) -> None:
    other = published(ours(seed=1), tmp_path / "other", **{CODE: "x = 0\n"})
    with pytest.raises(
        IntegrityError, match=f"expected model: identity is {identity(other)}, expected {identity(original)}"
    ):
        verify(other, expect=identity(original))
    with pytest.raises(IntegrityError, match="expected model: tensor .* has other content.* and [0-9]+ more"):
        verify(other, expect=original)


def test_the_expected_model_may_have_another_card_and_other_shards(original: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    ours().save_pretrained(again)
    (again / CODE).write_text("x = 1\n")
    (again / "vocab.txt").write_text("a\nb\n")
    (again / "README.md").write_text("another\n")
    qkv.scripts.publishing.integrity.manifest.write_manifest(again)
    rows = {row.check: row.result for row in checks(again, original, trusted=False)}
    assert rows["expected model"] == "passed"
    (again / CODE).write_text("x = 0\n")
    qkv.scripts.publishing.integrity.manifest.write_manifest(again)
    findings = next(row.findings for row in checks(again, original, trusted=False) if row.check == "expected model")
    assert findings == [f"file {CODE} has other content"]


def test_one_identity_has_digits(original: Path) -> None:
    rows = checks(original, identity(original)[:16], trusted=False)
    assert next(row.result for row in rows if row.check == "expected model") == "passed"
    for wrong in ("123", "no/where", identity(original).upper()):
        with pytest.raises(ValueError, match="is neither a folder nor an identity, which has 16 to 64 digits"):
            verify(original, expect=wrong)


def test_code_of_a_repository_runs_only_where_somebody_answers_for_it(
    original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted: list[bool] = []

    def load_rows(folder: Path, manifest: Any, *, trusted: bool) -> list[Row]:
        return [Row("remote code", skipped=not trusted)]

    monkeypatch.setattr(module, "fetched", lambda name, revision: original)
    monkeypatch.setattr(module, "load_rows", load_rows)
    for target, options in (
        ("user/name", {}),
        ("user/name", {"revision": "v1"}),
        ("user/name", {"trust_remote_code": True}),
        ("user/name", {"expect": identity(original)}),
        (original, {}),
    ):
        report = verify(target, **options)
        trusted.append(not report.rows[-1].skipped)
        assert report.commit == (None if target is original else original.name)
    assert trusted == [False, False, True, True, True]


def test_a_folder_has_no_revision(original: Path) -> None:
    with pytest.raises(ValueError, match="is a folder, which has no revision main; leave --revision out"):
        verify(original, revision="main")


def test_the_verdict_is_one_sentence() -> None:
    report = Report("user/name", "0" * 40, [Row("code", skipped=True)], "1" * 64)
    words = f"user/name at {'0' * 40} is what its manifest says, identity {'1' * 64}; not run: code"
    assert report.passed and report.sentence == words
    report = Report("mine", None, [Row("files", list("abcdef")), Row("code", ["g"])])
    assert report.sentence == "mine is not what its manifest says: files: a, b, c, d, and 2 more; code: g"


def test_code_that_was_tested_with_older_releases_of_transformers_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = qkv.publish(ours(), tmp_path / "hub").folder
    monkeypatch.setattr(module, "load_rows", lambda *_, **__: [])
    monkeypatch.setattr(transformers, "__version__", f"{TESTED['newest']}.0")
    report = examine(folder)
    assert report.passed and "; warning: " not in report.sentence
    assert {row.check: row.result for row in report.rows}["tested releases"] == "passed"
    forget_releases(folder)
    report = verify(folder)
    (row,) = (row for row in report.rows if row.warns)
    assert row == Row("tested releases", detail=untested(folder, UNSTATED), warns=True) and row.result == "warning"
    assert report.sentence.endswith(f"identity {identity(folder)}; warning: {row.detail}")


def test_users_find_it() -> None:
    assert qkv.verify is verify


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What a client finds in a repository with several revisions, and afterwards in its cache."""
    with LoopbackHub(tmp_path_factory.mktemp("loopback") / "hub") as hub:
        environment = hub.environment(tmp_path_factory.mktemp("home"))
        answers = Client("verify_jobs", ["publish", "online", "guarded"], environment).answers()
    words = {"HF_HUB_OFFLINE": "1", "QKV_TEST_COMMIT": answers["publish"]["first"]}
    return Answers(answers | Client("verify_jobs", ["offline"], environment | words).answers())


@pytest.mark.slow
def test_a_repository_is_verified_at_a_revision(found: Answers) -> None:
    commit, answers = found["publish"]["first"], found["online"]
    for name in ("expected", "trusted"):
        assert set(answers[name]["rows"].values()) == {"passed"} and answers[name]["commit"] == commit
        assert "remote code, AutoModelForCausalLM, bfloat16" in answers[name]["rows"]
    assert answers["expected"]["sentence"].endswith(
        f"at {commit} is what its manifest says, identity {found['publish']['identity']}"
    )
    assert answers["untrusted"]["rows"].pop("remote code, AutoModelForCausalLM") == "not run"
    assert set(answers["untrusted"]["rows"].values()) == {"passed"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("wrong revision", "IntegrityError", "expected model: identity is "),
        (
            "wrong revision, by name",
            "IntegrityError",
            "expected model: tensor model.embed_tokens.weight has other content",
        ),
        (
            "flipped",
            "IntegrityError",
            "model.safetensors has other content; tensors: tensor model.position.table.weight has",
        ),
        ("bare", "IntegrityError", "has no qkv_manifest.json to compare it with"),
        ("unknown", "ValueError", "the Hub has no such repository or revision third"),
    ],
)
def test_a_repository_that_is_another_is_named(found: Answers, name: str, kind: str, words: str) -> None:
    assert found["online"][name]["kind"] == kind and words in found["online"][name]["message"]


@pytest.mark.slow
def test_a_check_on_loading_knows_the_revision(found: Answers) -> None:
    answers = found["guarded"]
    assert answers["first"] == answers["low"] == "QkvDecoderForCausalLM"
    for name, words in (("flipped", "model.safetensors has other content"), ("bare", "has no qkv_manifest.json")):
        assert answers[name]["kind"] == "IntegrityError" and words in answers[name]["message"]


@pytest.mark.slow
def test_the_cache_is_verified_offline(found: Answers) -> None:
    for name in ("tag", "commit"):
        answer = found["offline"][name]
        assert answer["commit"] == found["publish"]["first"] and "FAILED" not in answer["rows"].values()
    assert found["offline"]["guarded"] == "QkvDecoderForCausalLM"
    assert "it is not in the cache and the Hub cannot be reached" in found["offline"]["unknown"]["message"]
