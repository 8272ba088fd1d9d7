"""Write the folder of a Gradio Space of the Hub that serves the page of a model."""

import json
from pathlib import Path
from typing import Any

import gradio as gr
import yaml

import qkv
from qkv.modeling.conversion.files import at_revision
from qkv.scripts.common.files import staged
from qkv.scripts.prediction.source import open_source

APP = '"""The page of a model, as `qkv demo` serves it."""\n\nimport qkv\n\nqkv.demo({}).block_thread()\n'
REQUIREMENTS = """\
# A wheel of qkv in this folder counts, too; torch comes without the libraries of GPUs.
--find-links .
--extra-index-url https://download.pytorch.org/whl/cpu
qkv[demo]=={}
"""


def write_space(name: str, folder: Path, **model: Any) -> None:
    """Write the program, its requirements and the card, which name a model of the Hub.

    ValueError where there is no model, or one of this machine; FileExistsError for a folder with files.
    """
    if Path(name).expanduser().is_dir():
        raise ValueError(f"{name} is on this machine; write qkv publish {name} user/name, and name that for the Space")
    public_name = open_source(name, **model).public_name
    own, commit = at_revision(name, model.get("revision"))
    options = {"revision": commit, "trust_remote_code": model.get("trust_remote_code")}
    arguments = ", ".join([json.dumps(own), *(f"{key}={value!r}" for key, value in options.items() if value)])
    card = {
        "title": public_name, "emoji": "🔎", "colorFrom": "blue", "colorTo": "gray", "sdk": "gradio",
        "sdk_version": gr.__version__, "app_file": "app.py", "models": [own],
    }  # fmt: skip
    header = yaml.safe_dump(card, allow_unicode=True, sort_keys=False)
    with staged(folder) as inside:
        (inside / "app.py").write_text(APP.format(arguments), encoding="utf-8")
        (inside / "requirements.txt").write_text(REQUIREMENTS.format(qkv.__version__), encoding="utf-8")
        (inside / "README.md").write_text(f"---\n{header}---\n\nA page to try a model.\n", encoding="utf-8")
