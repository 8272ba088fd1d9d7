"""What each way of installing brings: the base alone runs, trains and pushes models; what needs more says so."""

import ast
import json
import os
import re
import subprocess
import sys
import zipfile
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

import installation
from checkout import PYTHONPATH, ROOT, python_files
from loopback import serving
from loopback.server import environment
from qkv.scripts import cli
from qkv.scripts.common import extras
from qkv.scripts.training.trackers import TRACKERS

BASE = {"accelerate", "huggingface-hub", "numpy", "pyyaml", "safetensors", "torch", "transformers"}
# The extras that the modules of a room may import at their top. Nothing else needs one.
ROOMS = {
    "scripts/attention_view": ("train",),
    "scripts/data": ("train", "vision", "audio"),
    "scripts/example_data": ("train", "vision"),
    "scripts/prediction": ("train",),
    "scripts/recipes": ("train",),
    "scripts/sweep.py": ("sweep",),
    "scripts/tasks": ("train", "vision"),
    "scripts/training": ("train",),
    "scripts/publishing/card": ("hub",),
    "scripts/web_demo": ("demo", "train", "vision"),
}
NEED_TRAIN = {"attend", "demo", "evaluate", "generate", "plan", "predict", "quickstart", "sweep", "train"}
# The lab is not installed.
SOURCES = python_files("configuration", "modeling", "scripts", apart=frozenset({"lab"}))


def imported(path: Path, *, anywhere: bool) -> set[str]:
    """The modules of others that a file imports: at its top, or anywhere."""
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree)) if anywhere else tree.body
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.partition(".")[0] for name in names} - {*sys.stdlib_module_names, "qkv"}


@cache
def packages() -> dict[str, str]:
    """The distribution of every module that is installed."""
    return {module: canonicalize_name(names[0]) for module, names in packages_distributions().items()}


def distributions(modules: set[str]) -> set[str]:
    return {packages().get(module, canonicalize_name(module)) for module in modules}


@cache
def declared(*names: str) -> set[str]:
    return {canonicalize_name(requirement.name) for requirement in installation.requirements(*names)}


@cache
def brought(*names: str) -> set[str]:
    return set(installation.closure(installation.requirements(*names)))


def test_the_base_is_what_models_need() -> None:
    assert declared() == BASE


def test_a_room_imports_what_its_extras_declare() -> None:
    undeclared = {}
    for path in SOURCES:
        place = path.relative_to(ROOT).as_posix()
        names = next((names for room, names in ROOMS.items() if place.startswith(room)), ())
        names = (*names, "train", "vision") if path.stem.replace("_", "-") in NEED_TRAIN else names
        undeclared[place] = distributions(imported(path, anywhere=False)) - brought() - declared(*names)
        # Whoever calls `parametrize_with_checks` runs pytest.
        known = brought() | declared("all", "speech", "benchmark") | {"pytest"}
        undeclared[place] |= distributions(imported(path, anywhere=True)) - known
    assert {place: names for place, names in undeclared.items() if names} == {}


def test_the_extra_of_a_module_brings_it() -> None:
    found = {module for path in SOURCES for module in imported(path, anywhere=True)}
    for module in sorted(module for module in found if distributions({module}) - brought()):
        error = extras.explained(ModuleNotFoundError(name=f"{module}.inner"))
        assert isinstance(error, extras.MissingExtraError), module
        (extra,) = re.findall(r"pip install 'qkv\[(\w+)\]'", str(error))
        assert distributions({module}) <= declared(extra)
    assert not isinstance(extras.explained(ModuleNotFoundError(name="nothing")), extras.MissingExtraError)


def test_every_folder_with_code_is_in_the_wheel() -> None:
    folders = {path.parent for path in SOURCES if "package" not in path.relative_to(ROOT).parts}
    names = {".".join(("qkv", *folder.relative_to(ROOT).parts)) for folder in folders}
    packages = set(installation.SETTINGS["tool"]["setuptools"]["packages"])
    assert names == packages - {"qkv", "qkv.scripts.accelerate", "qkv.model_cards"}


BUILD = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"
IMPORT = "import site, sys; site.addsitedir(sys.argv[1]); import qkv; print(qkv.presets.__file__)"


@pytest.mark.slow  # `.ci/run` is such a clone
def test_an_editable_install_is_imported_beside_a_clone_called_qkv(tmp_path: Path) -> None:
    clone, site = tmp_path / "qkv", tmp_path / "site"
    clone.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "configuration", "modeling", "scripts", "model_cards"):
        (clone / name).symlink_to(ROOT / name)
    subprocess.run([sys.executable, "-c", BUILD, site], cwd=clone, check=True)
    zipfile.ZipFile(next(site.glob("*.whl"))).extractall(site)
    environment = {**os.environ, "PYTHONPATH": str(installation.install_dependencies(tmp_path))}
    words = [sys.executable, "-S", "-c", IMPORT, site]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == ROOT / "configuration" / "presets.py"


def test_the_wheel_has_every_table_and_the_files_of_a_page() -> None:
    shipped = {
        path
        for package, patterns in installation.SETTINGS["tool"]["setuptools"]["package-data"].items()
        for pattern in patterns
        for path in ROOT.joinpath(*package.split(".")[1:]).glob(pattern)
    }
    tables = {path for folder in ("configuration", "modeling", "scripts") for path in (ROOT / folder).rglob("*.yaml")}
    files = tables | {*(ROOT / "scripts" / "attention_view" / "page").iterdir()}
    assert {path for path in files - shipped if "lab" not in path.parts} == set()


def test_all_is_every_extra_for_users_but_trackers_and_the_one_under_another_license() -> None:
    users = installation.EXTRAS.keys() - {"all", "speech", "benchmark", "clients", "test", "docs", "dev", *TRACKERS}
    assert declared("all") == declared(*users)


@pytest.mark.parametrize(
    ("recipe", "extra"), [("shapes-detect", "vision"), ("tunes", "audio"), ("spoken-digits", "speech")]
)
@pytest.mark.costly(1)
def test_a_recipe_names_the_extra_before_it_begins(
    recipe: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    assert cli.main(["train", recipe, f"out={tmp_path / 'run'}"]) == 1
    assert capsys.readouterr().err.endswith(f"pip install 'qkv[{extra}]'\n")


PROGRAM = """
import io, json, shlex, sys, tempfile
from contextlib import redirect_stderr
import torch
import qkv

import push_jobs
import tiny
from qkv.scripts.arguments import COMMANDS, about
from qkv.scripts.cli import main
from transformers import Trainer, TrainingArguments


def commands():
    found = {}
    for name in COMMANDS:
        try:
            main([name, "--help"])
        except SystemExit as stop:
            found[name] = stop.code
    with redirect_stderr(io.StringIO()) as said:
        for name in NEED_TRAIN:
            found[name] += main(shlex.split(about(name)[1])[1:])
    return {"statuses": found, "said": said.getvalue()}


def heads():
    done = []
    for case in tiny.HEADS:
        model = case.build()
        if type(model).__module__ in done:
            continue
        inputs = case.inputs()
        if "Detection" in case.name:
            labels = inputs.pop("labels", None)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            again = getattr(__import__("transformers"), case.auto_class).from_pretrained(folder).eval()
        assert type(again) is type(model), case.name
        pairs = zip(model.state_dict().items(), again.state_dict().values(), strict=True)
        assert all(torch.equal(one, other) for (_, one), other in pairs), case.name
        with torch.no_grad():
            again(**inputs)
        done.append(type(model).__module__)
    return done


def trained():
    rows = [{"input_ids": torch.randint(4, 60, (9,)), "labels": index % 3} for index in range(8)]
    with tempfile.TemporaryDirectory() as folder:
        model = qkv.QkvEncoderForSequenceClassification(tiny.encoder())
        arguments = TrainingArguments(folder, max_steps=2, report_to="none", use_cpu=True, save_strategy="no")
        return Trainer(model=model, args=arguments, train_dataset=rows).train().training_loss


print(json.dumps({job.__name__: job() for job in (commands, heads, trained, push_jobs.pushed)}))
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a Python does that has what `pip install qkv` brings, and the tests' tiny models, and no site-packages."""
    folder = installation.install(tmp_path_factory.mktemp("site-packages"))
    place = tmp_path_factory.mktemp("hub")
    with serving() as hub:
        paths = {"PYTHONPATH": os.pathsep.join([str(folder), PYTHONPATH])}
        words = [sys.executable, "-S", "-c", PROGRAM.replace("NEED_TRAIN", repr(sorted(NEED_TRAIN)))]
        variables = environment(hub.url, place / "home", "hf_alice") | paths
        result = subprocess.run(words, cwd=place, env=variables, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout.splitlines()[-1])


def test_the_base_builds_saves_loads_runs_and_trains_every_family(base: dict[str, Any]) -> None:
    assert len(base["heads"]) == len(list((ROOT / "modeling").glob("modeling_*.py"))) and base["trained"] > 0


def test_the_base_pushes_a_model_with_its_code(base: dict[str, Any]) -> None:
    found = base["pushed"]
    assert "model.safetensors" in found["files"] and found["logits"][0] == found["logits"][1]


def test_commands_explain_themselves_on_the_base_and_name_the_extra_that_they_need(base: dict[str, Any]) -> None:
    statuses, said = base["commands"]["statuses"], base["commands"]["said"]
    assert {name for name, status in statuses.items() if status} == NEED_TRAIN
    # Beside the phase that is named where it takes longer than a moment.
    sentences = [line for line in said.splitlines() if not line.endswith(" …")]
    assert len(sentences) == len(NEED_TRAIN)
    assert all(re.search(r"is not installed; install it with pip install 'qkv\[\w+\]'$", line) for line in sentences)
