"""Write a folder that a Space of the Hub runs.

Of the kinds of Spaces, Docker is the one that runs any program which listens on a port. That for Gradio installs
Gradio, which nothing here uses.
"""

import json
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import qkv
from qkv.modeling.conversion.files import at_revision, write_json
from qkv.scripts.common.extras import require
from qkv.scripts.common.files import RECORD, staged, write_atomically
from qkv.scripts.prediction.source import ROLES, Source, open_source
from qkv.scripts.publishing.hub.screen import TABLES, UnfitError, leaks, scan
from qkv.scripts.publishing.hub.secrets import this_machine
from qkv.scripts.web_demo.arguments import PORT

MODEL = "model"  # the folder of the model in that of the Space
# Kinds of published files that a model is loaded from, and those of them that are about other files.
KINDS = ("weights", "configs", "vocabularies", "sentence pieces")
ABOUT_OTHERS = ("qkv_manifest.json", "certificate.json")
CODE = r"[A-Za-z]\w*\.py|chat_template\.jinja"
# What of a run's record the page shows, and what its predictions need: the columns of its texts.
SHOWN, COLUMNS = ("title", "limits", "prompt"), tuple(ROLES.values())

APP = """\
\"\"\"Serve the page of the model, as this Space runs it.\"\"\"

import qkv

qkv.demo({arguments}, host="0.0.0.0", port={port}).wait()
"""
DOCKERFILE = """\
FROM python:3.12-slim
# The user that a Space runs programs as.
RUN useradd --create-home --uid 1000 user
WORKDIR /home/user/app
COPY --chown=user . .
RUN pip install --no-cache-dir --requirement requirements.txt
USER user
ENV HOME=/home/user
CMD ["python", "app.py"]
"""
REQUIREMENTS = """\
# A wheel in this folder counts as well, for a version that PyPI has not.
--find-links .
# torch for CPUs, without the libraries of GPUs.
--extra-index-url https://download.pytorch.org/whl/cpu
qkv[train,vision,audio]=={version}
"""
README = """\
---
title: {title}
emoji: 🔎
colorFrom: blue
colorTo: gray
sdk: docker
app_port: {port}
{models}---

A page on which a person tries a model and sees its attention, written by `qkv demo --space`. Upload the folder with
`{upload}`.
"""


def write_space(name: str, folder: Path, *, revision: str | None = None, trust_remote_code: bool = False) -> None:
    """Write the folder of a Space: the program, what it needs, the header that the Hub reads, and a local model.

    A model of the Hub is named, at the revision that is given. Files of a local one are scanned as `qkv publish` scans
    them. ValueError where there is no model, or it may not be published; FileExistsError for a folder that is in use.
    """
    source = open_source(name, revision, trust_remote_code=trust_remote_code)
    is_local = Path(name).expanduser().is_dir()
    own, commit = at_revision(name, revision)
    options = {"revision": None if is_local else commit, "trust_remote_code": trust_remote_code or None}
    given = [json.dumps(MODEL if is_local else own)]
    given += [f"{key}={value!r}" for key, value in options.items() if value is not None]
    title = str((source.record.get("recipe") or {}).get("title") or own.rstrip("/").rpartition("/")[2])
    models = "" if is_local else f"models:\n- {json.dumps(own)}\n"
    with staged(folder) as inside:
        if is_local:
            copy_model(source, inside / MODEL)
        files = {
            "app.py": APP.format(arguments=", ".join(given), port=PORT),
            "Dockerfile": DOCKERFILE,
            "requirements.txt": REQUIREMENTS.format(version=qkv.__version__),
            "README.md": README.format(
                title=json.dumps(title, ensure_ascii=False), port=PORT, models=models, upload=upload_command(Path("."))
            ),
        }
        for place, content in files.items():
            write_atomically(inside / place, content)


def copy_model(source: Source, target: Path) -> None:
    """Copy the files that a model is loaded from; ValueError where one may not be published."""
    require("detect_secrets")
    patterns = [TABLES["published"][kind] for kind in KINDS] + [CODE] * ("trust_remote_code" in source.options)
    target.mkdir()
    for path in sorted(source.folder.iterdir()):
        if path.is_file() and path.name not in ABOUT_OTHERS and any(re.fullmatch(own, path.name) for own in patterns):
            shutil.copyfile(path, target / path.name)
    recipe = source.record.get("recipe") or {}
    text = recipe.get("text") or {}
    kept = {key: str(recipe[key]) for key in SHOWN if recipe.get(key)}
    columns = {key: str(text[key]) for key in COLUMNS if text.get(key)}
    check_public(source.name, target, [*kept.values(), *columns.values()])
    write_json(target / RECORD, {"recipe": {**kept, "text": columns}})


def check_public(name: str, folder: Path, texts: Sequence[str]) -> None:
    """Raise ValueError where a file of a model, or a text of its record, may not be published."""
    try:
        scan(folder)
        reasons = [f"its record holds {leak.what}" for text in texts for leak in leaks(text, "", this_machine())]
    except UnfitError as error:
        reasons = [str(error).partition(" may not be published: ")[2].partition("; remove that")[0]]
    if reasons:
        raise ValueError(
            f"{name} may not be published: {reasons[0]}; remove that, or publish the model with qkv publish, which can "
            "allow a name, and give its Hub id"
        )


def upload_command(folder: Path) -> str:
    """Return the commands that make a Space of a folder."""
    return (
        "hf repos create you/name --type space --sdk docker && "
        f"hf upload you/name {shlex.quote(str(folder))} --type space"
    )
