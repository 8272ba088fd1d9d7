"""Does every way of loading a folder give the model of its manifest? Tensors, keys and answers are compared bit by bit.

The ways: its class, twice; its Auto class, plain, through `device_map` and in bfloat16; and the Auto class in a process
that has no qkv, with the code of the folder where that has any.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from qkv.modeling.conversion.files import CONFIG, read_json
from qkv.scripts.publishing.integrity.certificate import identical
from qkv.scripts.publishing.integrity.files import Row
from qkv.scripts.publishing.integrity.loading import Loaded, auto_class, installed_class, load, loaded, loaded_elsewhere
from qkv.scripts.publishing.integrity.manifest import Manifest, differences, unfit
from qkv.scripts.publishing.integrity.probe import questions

LOW = "bfloat16"
Answers = dict[str, Tensor]


@dataclass(frozen=True)
class Way:
    """What the options of `from_pretrained` are called, those options, and whether a forward pass follows."""

    name: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    asks: bool = True

    @property
    def rounded(self) -> bool:
        """Whether the weights are not those of the files."""
        return "dtype" in self.options


PLAIN, ROUNDED, ON_CPU = Way(), Way(f", {LOW}", {"dtype": LOW}), Way(', device_map="cpu"', {"device_map": "cpu"})
# With an accelerator it computes there, with other last bits.
ANYWHERE = Way(', device_map="auto"', {"device_map": "auto"}, asks=False)


def load_rows(folder: Path, manifest: Manifest, *, trusted: bool) -> Iterator[Row]:
    """A row for each way of loading; the answers of all have to be those of the first."""
    model_class, auto = installed_class(folder), auto_class(folder)
    if model_class is None:
        yield Row("class", detail=f"neither qkv nor transformers has {manifest['class']}", skipped=True)
    inputs = None if model_class is None else asked(model_class, folder)
    reference: Answers = {}
    for name, way, loader in ways_here(model_class, auto):
        try:
            found = loaded(loader, folder, inputs if way.asks else None, **way.options)
        except Exception as error:
            yield Row(name, [failure(error)])
            continue
        reference = reference or found.answers
        yield judged(name, way, found, manifest, reference)
    if auto is None:
        yield Row("without qkv", detail=f"{manifest['class']} has no Auto class", skipped=True)
    else:
        yield from rows_elsewhere(folder, auto, manifest, (inputs, reference), trusted=trusted)


def asked(model_class: Any, folder: Path) -> Answers | None:
    """Inputs for the model of a folder; none where it does not load, or where it is not known what it reads."""
    try:
        model, _ = load(model_class, folder)
        return questions(model, model)
    except Exception:
        return None


def ways_here(model_class: Any, auto: str | None) -> Iterator[tuple[str, Way, Any]]:
    """(name, way, what has `from_pretrained`) of the loads in this process."""
    if model_class is not None:
        yield from ((f"{model_class.__name__}{again}", PLAIN, model_class) for again in ("", ", again"))
    if model_class is not None and auto is not None:
        loader = getattr(transformers, auto)
        yield from ((f"{auto}{way.name}", way, loader) for way in (PLAIN, ON_CPU, ANYWHERE, ROUNDED))


def rows_elsewhere(
    folder: Path, auto: str, manifest: Manifest, asked: tuple[Answers | None, Answers], *, trusted: bool
) -> Iterator[Row]:
    """The rows of the loads in a process that has no qkv; `asked` are the inputs and the answers to expect."""
    inputs, reference = asked
    remote = bool(read_json(folder / CONFIG).get("auto_map"))
    title = f"{'remote code' if remote else 'without qkv'}, {auto}"
    if remote and not trusted:
        reason = "it is the repository's: --expect or --trust-remote-code allows it to run"
        yield Row(title, detail=reason, skipped=True)
        return
    ways, home = (PLAIN, ON_CPU, ROUNDED), "transformers_modules." if remote else "transformers."
    try:
        found = loaded_elsewhere(folder, auto, inputs, [{**way.options, "trust_remote_code": remote} for way in ways])
    except RuntimeError as error:
        yield Row(title, [failure(error)])
        return
    for way, each in zip(ways, found, strict=True):
        reference = reference or each.answers
        yield judged(f"{title}{way.name}", way, each, manifest, reference, home=home)


def failure(error: Exception) -> str:
    """An error on loading in one line."""
    return f"does not load: {' '.join(str(error).split()) or type(error).__name__}"


def judged(name: str, way: Way, found: Loaded, manifest: Manifest, reference: Answers, home: str = "") -> Row:
    """What one load gave that the manifest does not say, or the first load did not answer."""
    lines = class_findings(found, manifest, home) + unfit(found.report)
    expected = manifest["loaded"].get(LOW if way.rounded else manifest["dtype"], {})
    for kind, entries in found.report["loaded"].items():
        lines += differences(kind, expected.get(kind, {}), entries)
    lines += [] if not found.answers else answer_findings(found.answers, None if way.rounded else reference)
    count = sum(map(len, found.report["loaded"].values()))
    answers = "finite" if way.rounded else "equal bit by bit"
    return Row(name, lines, f"{count} tensors equal" + (f", answers {answers}" if found.answers else ""))


def class_findings(found: Loaded, manifest: Manifest, home: str) -> list[str]:
    """Whether it is another class, from another place, or with other ties."""
    report = found.report
    lines = []
    if report["class"] != manifest["class"] or not report["module"].startswith(home):
        lines.append(f"gives {report['class']} of {report['module']}, the manifest says {manifest['class']} of {home}*")
    for name in sorted({name for name, _ in report["ties"].items() ^ manifest["ties"].items()}):
        now, then = (each["ties"].get(name, "nothing") for each in (report, manifest))
        lines.append(f"parameter {name} is tied to {now}, the manifest says {then}")
    return lines


def answer_findings(found: Answers, reference: Answers | None) -> list[str]:
    """Which answers are others than the reference's, or where there is none, no finite numbers."""
    if reference is None:
        return [f"answer {name} is not finite" for name, value in found.items() if not torch.isfinite(value).all()]
    return [
        f"answer {name} differs from that of the first load"
        for name in sorted(found.keys() | reference.keys())
        if name not in found or name not in reference or not identical(found[name], reference[name])
    ]
