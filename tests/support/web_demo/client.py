"""A client of the page that `qkv demo` serves, and what it sends."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

JSON = {"Content-Type": "application/json"}


def get(url: str, **headers: str) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers and content of an address."""
    return answered(urllib.request.Request(url, headers=headers))


def post(url: str, content: Any, headers: Mapping[str, str] = JSON) -> tuple[int, Any]:
    """Status and object of what is sent as JSON, or as the bytes that are given."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    status, _, answer = answered(urllib.request.Request(url, body, dict(headers)))
    return status, json.loads(answer)


def answered(request: urllib.request.Request) -> tuple[int, Mapping[str, str], bytes]:
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def file(path: Path | bytes) -> str:
    """A file as requests hold it."""
    return base64.b64encode(path if isinstance(path, bytes) else path.read_bytes()).decode()


def request_of(kind: str, folder: Path) -> dict[str, Any]:
    """What a person tries on a tiny run of `own_runs`, whose data are in `folder`."""
    if kind in ("images", "captions", "boxes"):
        labels = {"labels": "a cat\na dög"} if kind == "captions" else {}
        options = {"options": {"threshold": 0.01}} if kind == "boxes" else {}
        return {"file": file(folder / "files" / "0.png"), **labels, **options}
    if kind in ("speech", "ctc"):
        return {"file": file(folder / "files" / "0.wav"), "options": {"max_new_tokens": 3}}
    if "folds" in kind:
        return {"text": "GGGAAACCC"}
    text = {"text": "warm {mask} façade" if kind == "masked" else "warm dull façade"}
    options = {"max_new_tokens": 3} if kind in ("targets", "responses", "texts") else {}
    return {**text, "pair": "a second one", "options": options}
