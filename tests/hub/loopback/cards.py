"""Is the metadata of a model card valid? `POST /api/validate-yaml`, which clients ask before they commit a README.md."""

from collections.abc import Iterator
from typing import Any

import yaml

from loopback.information import FRONT_MATTER
from loopback.messages import Reply, Request
from loopback.routes import route

RESULT = {"task", "dataset", "metrics"}


@route("POST", "/api/validate-yaml")
def validate(request: Request) -> Reply:
    found = FRONT_MATTER.match(request.json["content"])
    try:
        metadata = yaml.safe_load(found[1] or "") if found else None
        errors = list(mistakes(metadata or {}))
    except yaml.YAMLError as error:
        metadata, errors = {}, [f"YAML error: {error}"]
    warnings = [] if metadata or errors else ["empty or missing yaml metadata in repo card"]
    answer = {"errors": [{"message": word} for word in errors], "warnings": [{"message": word} for word in warnings]}
    return Reply(answer, 400 if errors else 200)


def mistakes(metadata: Any) -> Iterator[str]:
    """Yield the mistakes of the metadata."""
    if not isinstance(metadata, dict):
        yield "metadata should be a mapping"
        return
    strings = {"pipeline_tag": str, "library_name": str, "license": str | list}
    wrong = [key for key, kind in strings.items() if not isinstance(metadata.get(key, ""), kind)]
    yield from (f'"{key}" must be a string' for key in wrong)
    lists = [key for key in ("tags", "metrics") if not is_string_list(metadata.get(key) or [])]
    yield from (f'"{key}" must be an array of strings' for key in lists)
    if not is_index(metadata.get("model-index") or []):
        yield '"model-index" is not valid'


def is_index(value: Any) -> bool:
    """Return whether this is a list of models with results that name task, data set and metric."""
    if not isinstance(value, list) or not all(isinstance(model, dict) for model in value):
        return False
    results = [result for model in value for result in model.get("results") or []]
    return all(isinstance(result, dict) and result.keys() >= RESULT for result in results)


def is_string_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)
