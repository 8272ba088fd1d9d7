"""A process that uploads folders, one job a line: started by `uploads.py`, with the environment of a client of a Hub.

The root of the package is not run: it would import transformers, of which uploading makes no use.
"""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

package = ModuleType("qkv")
package.__path__ = [str(Path(__file__).parents[2])]
sys.modules["qkv"] = package

from qkv.scripts.publishing.hub.options import Package, PublishOptions  # noqa: E402  the package has to stand first
from qkv.scripts.publishing.hub.retry import Patience  # noqa: E402
from qkv.scripts.publishing.hub.upload import send  # noqa: E402


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Do one job and return its result."""
    os.environ.pop("HF_TOKEN", None)
    if job["token"]:
        os.environ["HF_TOKEN"] = job["token"]
    folder = Path(job["folder"])
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    try:
        options, patience = PublishOptions(**job["options"]), Patience(**job["patience"])
        return asdict(send(Package(folder, "", files=files), job["repo"], options, patience))
    except Exception as error:
        return {"error": str(error), "kind": type(error).__name__}


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
assert not {"torch", "transformers"} & sys.modules.keys(), "uploading has to stay light"
