"""Write the folder of a Gradio Space of the Hub that serves the page of a model."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import gradio as gr
import yaml

import qkv
from qkv.modeling.conversion.files import at_revision
from qkv.scripts.common.extras import require
from qkv.scripts.common.files import RECORD, staged
from qkv.scripts.prediction.source import ROLES, Source, open_source
from qkv.scripts.publishing.hub.screen import PUBLISHED, scan

KINDS = ("weights", "configs", "vocabularies", "sentence pieces")  # of published files, those that a model loads
OTHERS = ("qkv_manifest.json", "certificate.json")  # configs about other files
APP = '"""The page of a model, as `qkv demo` serves it."""\n\nimport qkv\n\nqkv.demo({}).block_thread()\n'
REQUIREMENTS = """\
# A wheel of qkv in this folder counts, too; torch comes without the libraries of GPUs.
--find-links .
--extra-index-url https://download.pytorch.org/whl/cpu
qkv[demo]=={}
"""


def write_space(name: str, folder: Path, **model: Any) -> None:
    """Write the program, its requirements, the card, and a copy of a local model; of the Hub a model is named.

    ValueError where there is no model, or a file of it may not be published; FileExistsError for a folder with files.
    """
    source = open_source(name, **model)
    is_local, recipe = Path(name).expanduser().is_dir(), source.record.get("recipe") or {}
    own, commit = ("model", None) if is_local else at_revision(name, model.get("revision"))
    options = {"revision": commit, "trust_remote_code": model.get("trust_remote_code")}
    arguments = ", ".join([json.dumps(own), *(f"{key}={value!r}" for key, value in options.items() if value)])
    card = {
        "title": str(recipe.get("title") or source.public_name), "emoji": "🔎", "colorFrom": "blue", "colorTo": "gray",
        "sdk": "gradio", "sdk_version": gr.__version__, "app_file": "app.py", **({} if is_local else {"models": [own]}),
    }  # fmt: skip
    header = yaml.safe_dump(card, allow_unicode=True, sort_keys=False)
    with staged(folder) as inside:
        if is_local:
            copy_model(source, inside / own)
        (inside / "app.py").write_text(APP.format(arguments), encoding="utf-8")
        (inside / "requirements.txt").write_text(REQUIREMENTS.format(qkv.__version__), encoding="utf-8")
        (inside / "README.md").write_text(f"---\n{header}---\n\nA page to try a model.\n", encoding="utf-8")


def copy_model(source: Source, target: Path) -> None:
    """Copy the files that a model loads, and the texts of the page; ValueError for files that may not be published."""
    require("detect_secrets")
    target.mkdir()
    patterns = [PUBLISHED[kind] for kind in KINDS] + [r"chat_template\.jinja"]
    patterns += [r"[A-Za-z]\w*\.py"] * ("trust_remote_code" in source.options)
    for path in sorted(source.folder.iterdir()):
        if path.is_file() and path.name not in OTHERS and any(re.fullmatch(one, path.name) for one in patterns):
            shutil.copyfile(path, target / path.name)
    recipe = source.record.get("recipe") or {}
    text = {key: recipe["text"][key] for key in ROLES.values() if (recipe.get("text") or {}).get(key)}
    public = {"recipe": {key: recipe[key] for key in ("title", "limits", "prompt") if recipe.get(key)} | {"text": text}}
    # The scan refuses a record, and reads a card, which here has the same texts.
    (target / "README.md").write_text(yaml.safe_dump(public, allow_unicode=True, width=100_000), encoding="utf-8")
    scan(target)
    (target / RECORD).write_text(json.dumps(public), encoding="utf-8")
