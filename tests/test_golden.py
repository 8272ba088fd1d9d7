"""Names of parameters and defaults of configs are a promise to every saved checkpoint: a change must show as a diff.

`python tests/test_golden.py` writes the files of `golden/` anew; a changed one belongs in CHANGELOG.md under
"Checkpoint-affecting".
"""

import json
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent / "support"))
    import conftest  # noqa: F401  makes the checkout importable

import pytest
import torch
import transformers

from qkv.configuration import presets

GOLDEN = Path(__file__).parent / "golden"


def shapes(model: torch.nn.Module) -> dict[str, Any]:
    """{name: shape}, tied names included."""
    return {name: list(value.shape) for name, value in model.state_dict().items()}


def describe(name: str) -> dict[str, Any]:
    """Return what a preset saves: its config.json, the parameters of the base model with one layer, and each head's own."""
    saved = json.loads(getattr(presets, name)().to_json_string())
    config = getattr(presets, name)(num_hidden_layers=1)
    with torch.device("meta"):
        parameters = shapes(transformers.AutoModel.from_config(config))
        heads = {}
        for auto_class, reference in config.auto_map.items():
            head = getattr(transformers, auto_class)
            if auto_class not in ("AutoConfig", "AutoModel"):
                own = shapes(head.from_config(config))
                heads[reference.split(".")[1]] = {
                    k: v for k, v in own.items() if k.removeprefix("model.") not in parameters
                }
    # A thousand nameless labels say no more than their number.
    dropped = ("transformers_version", "id2label", "label2id")
    kept = {key: value for key, value in saved.items() if key not in dropped}
    return {"config": {**kept, "num_labels": config.num_labels}, "model": parameters, "heads": heads}


@pytest.mark.parametrize("name", presets.names())
def test_nothing_that_is_saved_has_changed(name: str) -> None:
    assert describe(name) == json.loads((GOLDEN / f"{name}.json").read_text())


def test_every_preset_has_its_file_and_no_other_has() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*")) == presets.names()


def write(value: Any, indent: str = "\n") -> str:
    """JSON with a line for each entry and shapes on one line."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    inner = indent + "  "
    return "{" + ",".join(f"{inner}{json.dumps(k)}: {write(v, inner)}" for k, v in value.items()) + indent + "}"


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for preset in presets.names():
        (GOLDEN / f"{preset}.json").write_text(write(describe(preset)) + "\n")
