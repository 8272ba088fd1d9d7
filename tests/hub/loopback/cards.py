"""Is the metadata of a model card YAML? `POST /api/validate-yaml`, which clients ask before they commit a README.md."""

import re

import yaml

from loopback.messages import Reply, Request
from loopback.routes import route

FRONT_MATTER = re.compile(r"\A---[^\n\S]*\r?\n(.*?\n)?---[^\n\S]*(\r?\n|\Z)", re.DOTALL)


@route("POST", "/api/validate-yaml")
def validate(request: Request) -> Reply:
    card = FRONT_MATTER.match(request.json["content"])
    try:
        yaml.safe_load(card[1] or "" if card else "")
    except yaml.YAMLError as error:
        return Reply({"errors": [{"message": f"YAML error: {error}"}], "warnings": []}, 400)
    return Reply({"errors": [], "warnings": []})
