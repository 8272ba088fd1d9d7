"""Pages are true: Python runs as it stands, commands parse, tables are complete, and links lead somewhere."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import installation
from qkv.configuration import CONFIGS
from qkv.configuration.axes import FeedForwardName, NormName, PatternName, PositionName
from qkv.scripts.arguments import parser_of

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ("model_cards/history", "model_cards/speed", "model_cards/speed-long")
FOLDERS = ("configuration", "scripts", "scripts/data", "scripts/recipes", *MEASURED)
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(ROOT / folder / "README.md" for folder in FOLDERS),
    *sorted((ROOT / "docs").glob("*.md")),
]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """The blocks of a language on all pages, each with its page."""
    for page in PAGES:
        for code in re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.S | re.M):
            yield page.relative_to(ROOT).as_posix(), code


EXAMPLES = list(blocks("python"))
LINES = sorted({(page, line) for page, code in blocks("bash") for line in code.splitlines() if shlex.split(line, True)})


def test_the_first_code_of_the_readme_stands_on_its_first_screen():
    assert README.splitlines().index("```python") < 24 and len(README.splitlines()) <= 120


@pytest.mark.parametrize(("page", "code"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_runs(page, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page, "exec"), {"__name__": "readme"})


def programs(line: str) -> Iterator[list[str]]:
    """The commands of a line of shell, without what is set for them."""
    words = shlex.split(line.replace("&&", " ; "), comments=True)
    while words:
        end = words.index(";") if ";" in words else len(words)
        command, words = words[:end], words[end + 1 :]
        while command and re.match(r"[A-Z_]+=", command[0]):
            command = command[1:]
        yield command


def check_qkv(name: str, *words: str) -> None:
    assert parser_of(name).parse_intermixed_args(words)


def check_make(*words: str) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert {word for word in words if "=" not in word} <= set(targets)


def check_pip(_: str, *words: str) -> None:
    named = {extra for word in words for extras in re.findall(r"\[([\w,-]+)\]", word) for extra in extras.split(",")}
    assert named <= set(installation.EXTRAS)


def check_files(*words: str) -> None:
    """Files of the repository are there."""
    paths = [word.partition("::")[0] for word in words if re.match(r"(scripts|tests|configuration|modeling)/", word)]
    assert paths and [path for path in paths if not (ROOT / path).exists()] == []


CHECKS = {"qkv": check_qkv, "make": check_make, "pip": check_pip, "torchrun": check_files, "accelerate": check_files,
          "pytest": check_files}  # fmt: skip
# Of others, whose arguments are theirs; `.ci/run` is the script of ours that runs them all.
OTHERS = {"git", "openssl", "sha256sum", "diff", "python", "pre-commit", ".ci/run"}


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page}:{line[:40]}" for page, line in LINES])
def test_a_line_of_shell_is_one_that_its_program_takes(page, line):
    for program, *words in programs(line):
        assert program in OTHERS or CHECKS[program](*words) is None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert [name for name in targets if not name.startswith("http") and not (page.parent / name).exists()] == []


def test_recipes_are_all_in_the_table():
    page = ROOT / "scripts" / "recipes" / "README.md"
    listed = {
        name for row in re.findall(r"^\| (.*?) \|", page.read_text(), re.M) for name in re.findall(r"`([\w-]+)`", row)
    }
    assert {path.stem for path in (ROOT / "scripts" / "recipes").glob("*.yaml")} <= listed


def test_families_presets_and_words_are_all_in_the_tables():
    names = {config_class.__name__.removesuffix("Config") for config_class in CONFIGS} - {"QkvTextEncoder"}
    assert names <= set(re.findall(r"^\| `(\w+)` \|", README, re.M))
    words = {*get_args(PositionName), *get_args(PatternName), *get_args(NormName), *get_args(FeedForwardName)}
    assert {word for word in words if not re.search(rf"\b{word}\b", README)} == set()


def speed_of(folder: str) -> dict[str, float]:
    """How many times as fast as transformers each workload of a record is, the median of its rounds."""
    record = json.loads((ROOT / "model_cards" / folder / "record.json").read_text())
    return {name: each["contenders"]["qkv"]["times_as_fast"][1] for name, each in record["workloads"].items()}


def test_speed_is_that_of_the_record():
    ours, long = speed_of("speed"), speed_of("speed-long")
    trained = sorted(ours[name] for name in ours if name.startswith("mlm-train"))
    decoded = sorted(ours[name] for name in ours if name.startswith(("decode", "seq2seq-greedy", "seq2seq-beam")))
    (sentence,) = re.findall(r"Fast on a CPU.*?model_cards/speed-long", README, re.DOTALL)
    told = [trained[0], trained[-1], ours["seq2seq-train"], decoded[0], decoded[-1]]
    told += [long[f"{name}{step}-4096"] for step in ("", "-train") for name in ("window", "longformer", "big-bird")]
    assert re.findall(r"\d\.\d", sentence) == [f"{number:.1f}" for number in told]


def test_the_fields_of_the_table_of_words_exist():
    rows = README.split("| field | values |\n")[1].split("\n\n")[0].splitlines()
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    fields = set().union(*(config_class.known_fields() for config_class in CONFIGS))
    assert named and named <= fields
