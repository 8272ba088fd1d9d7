"""Export a model by transformers' exporter, and compare what it computes; run as `export_worker.py CASE FOLDER`.

In a process of its own: the exporter reaches into torch, and after thousands of other tests in the same process torch
was seen not to find its own data types when the program is saved.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    import conftest  # noqa: F401  makes the checkout importable

import torch
from torch.testing import assert_close
from transformers.exporters import DynamoConfig, DynamoExporter
from transformers.exporters.base import ExportedModel

import tiny
from tiny import CASES


def export(name: str, folder: Path) -> None:
    """Raise unless the exported program, and the same saved and loaded, compute what the model does at two sizes."""
    model = next(case for case in CASES if case.name == name).build()
    model.remove_padding = False  # a program has no zeros at padding
    if "vit" in name:
        small, large = tiny.images(batch=2), tiny.images(batch=5)
    elif model.config.is_encoder_decoder:
        small, large = tiny.pairs(), {k: v.repeat(2, 1)[:, :6] for k, v in tiny.pairs().items()}
    else:
        small, large = tiny.text(batch=2, length=7), tiny.text(batch=3, length=11)
    options = {} if "vit" in name else {"use_cache": False}
    exported = DynamoExporter().export(model, {**small, **options}, config=DynamoConfig(dynamic=True))
    exported.save_pretrained(folder)
    for program in (exported, ExportedModel.from_pretrained(folder)):
        for inputs in (small, large):
            with torch.no_grad():
                expected = model(**inputs).logits
            assert_close(program(**inputs, **options).logits, expected, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    export(sys.argv[1], Path(sys.argv[2]))
    print("equal")
