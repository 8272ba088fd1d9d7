"""How does a model get to where others can load it? Built into a folder, screened, and sent in one commit."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils._validators import validate_repo_id
from transformers import PreTrainedModel

from qkv.modeling.conversion.convert import to_transformers
from qkv.scripts.publishing.card.card import companions, make_card, plain_card
from qkv.scripts.publishing.export.folder import build_folder, staged
from qkv.scripts.publishing.hub.repository import Target
from qkv.scripts.publishing.hub.screen import screen
from qkv.scripts.publishing.hub.source import Source, built_folder, read_source
from qkv.scripts.publishing.hub.upload import Change, local, upload
from qkv.scripts.publishing.integrity.manifest import identity


class Options(TypedDict, total=False):
    """How else to publish.

    `native` writes the stock transformers form, which needs no remote code; `other`, the Hub id or address of the
    model's other form, is linked. `pull_request` proposes the commit, `tag` names it, `message` describes it, `dry_run`
    only compares. `dtype` and `max_shard_size` are those of the weights. `allow` are names and paths that everybody may
    read although they are of this machine. `step` is called with what is done next.
    """

    native: bool
    other: str | None
    pull_request: bool
    tag: str | None
    message: str
    dry_run: bool
    dtype: str | None
    max_shard_size: str | None
    allow: Sequence[str]
    step: Callable[[str], None]


# What only the Hub has, and what acts while a folder is built.
OF_THE_HUB = ("private", "revision", "pull_request", "tag", "message", "dry_run")
OF_BUILDING = ("processor", "record", "other", "dtype", "max_shard_size")


@dataclass(frozen=True)
class Published:
    """What was published, perhaps from a folder `as_built` before: in `folder`, or on the Hub at `url` in `commit`.

    `identity` is that in the manifest: `qkv verify --expect` compares it with what people get.

    After a dry run `commit` is what the Hub has, None if that is nothing, and `changes` is what would become of it.
    """

    changes: tuple[Change, ...]
    identity: str
    folder: Path | None = None
    url: str | None = None
    commit: str | None = None
    pull_request: str | None = None
    as_built: bool = False


def publish(
    source: PreTrainedModel | str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    processor: Any = None,
    record: str | os.PathLike[str] | None = None,
    private: bool | None = None,
    revision: str | None = None,
    **options: Unpack[Options],
) -> Published:
    """Put a model where `from_pretrained` finds it without qkv: on the Hub in one commit, or in a new folder.

    `source` is a model, its folder, a run folder, or a folder that was built before. All of it is screened before any
    of it leaves this machine, and the target holds the old or the new, never a mixture. UnfitError names a file that
    may not be published; PublishError says in a sentence why the Hub did not take it.
    """
    place = destination(target)
    given: dict[str, Any] = {
        **options,
        "processor": processor,
        "record": record,
        "private": private,
        "revision": revision,
    }
    aim = hub_target(place, given) if isinstance(place, str) else None
    if aim is None:
        refuse(given, OF_THE_HUB, f"{place} is a folder, and {{}} is for the Hub; leave it out, or name user/model")
    with workspace(place) as folder:
        built = prepared(source, folder, place, given)
        known = identity(built)
        told(given, "screen the folder")
        files = screen(built, public=[*words(place), *options.get("allow", ())])
        if aim is None:
            return Published(kept(files, folder), known, folder=Path(place), as_built=built != folder)
        told(given, "compare with the Hub" if options.get("dry_run") else "send to the Hub")
        done = upload(files, aim, dry_run=options.get("dry_run", False))
    where: dict[str, Any] = {"url": done.url, "commit": done.commit, "pull_request": done.pull_request}
    return Published(done.changes, known, **where, as_built=built != folder)


def prepared(
    source: PreTrainedModel | str | os.PathLike[str], folder: Path, place: Path | str, given: Mapping[str, Any]
) -> Path:
    """A folder to publish: the one that was named, if it was built before, or the one that is built now."""
    if not given.get("native") and (built := built_folder(source)):
        refuse(given, OF_BUILDING, f"{built} is built already, too late for {{}}; name the model it was built of")
        return built
    told(given, "read the model")
    found = read_source(source, processor=given["processor"], record=given["record"], dtype=given.get("dtype"))
    told(given, "build the folder")
    return build(found, folder, place, given)


def told(given: Mapping[str, Any], what: str) -> None:
    """Say what is done next to whoever wants to know."""
    if step := given.get("step"):
        step(what)


def destination(target: str | os.PathLike[str]) -> Path | str:
    """A folder if it is a path, looks like one, or is there; otherwise the name of a repository."""
    name = os.fspath(target)
    if isinstance(target, os.PathLike) or name.startswith((".", "~", os.sep)) or Path(name).is_dir():
        return Path(name).expanduser()
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ValueError(f"{name!r} is no name for a repository: {error}") from error
    if "/" not in name:
        raise ValueError(f"{name!r} is neither a folder nor user/name; write ./{name} for a new folder")
    return name


def refuse(given: Mapping[str, Any], names: Sequence[str], sentence: str) -> None:
    """Raise ValueError for the first of these options that is given."""
    for name in names:
        # That a repository shall not be private is a wish, that no pull request is wanted is not.
        if given.get(name) not in ((None,) if name == "private" else (None, False)):
            raise ValueError(sentence.format(name))


@contextmanager
def workspace(place: Path | str) -> Iterator[Path]:
    """An empty folder to build in: what becomes the target, or one that goes when all is sent."""
    if isinstance(place, Path):
        with staged(place) as folder:
            yield folder
    else:
        with tempfile.TemporaryDirectory(prefix="qkv-") as name:
            yield Path(name)


def words(place: Path | str) -> list[str]:
    """What everybody reads in the address of a repository."""
    return [] if isinstance(place, Path) else [place, *place.split("/")]


def build(source: Source, folder: Path, place: Path | str, given: Mapping[str, Any]) -> Path:
    """Fill a folder with one of the forms of a model."""
    sizes = {"max_shard_size": size} if (size := given.get("max_shard_size")) else {}
    # First, for it says best why there is no native form.
    model: Any = to_transformers(source.model) if given.get("native") else source.model
    card, files = described(source, place, given)
    return build_folder(model, folder, processors=source.processors, card=card, files=files, **sizes)


def described(
    source: Source, place: Path | str, given: Mapping[str, Any]
) -> tuple[Callable[[str], str], Mapping[str, bytes]]:
    """What makes the card of a model, and what goes along with it; ValueError for the record of another model."""
    known: dict[str, Any] = {"form": "native" if given.get("native") else "self-contained"}
    known |= {"other": given.get("other"), "processor": bool(source.processors)}
    known |= {"repo": place} if isinstance(place, str) else {}
    if source.record is None:
        name = place.name if isinstance(place, Path) else place.partition("/")[2]
        config = {**source.model.config.to_dict(), "architectures": [type(source.model).__name__]}
        known |= {"name": name, "certificate": source.certificate}
        return lambda identity: str(plain_card(config, digest=identity, **known)), {}
    record = json.loads(source.record.read_text(encoding="utf-8"))
    count = source.model.num_parameters()
    if record["parameters"] != count:
        raise ValueError(
            f"{source.record} is of a model with {record['parameters']:,} parameters and this one has {count:,}; name "
            "the record of its own training"
        )
    files = companions(record, source.record.parent)
    return lambda identity: str(make_card(record, digest=identity, **known)), files


def kept(files: Mapping[str, Path], folder: Path) -> tuple[Change, ...]:
    """The files of the folder that is being written, copied there if they were built elsewhere."""
    for name, path in files.items():
        if not path.is_relative_to(folder):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / name)
    found = {name: local(path) for name, path in files.items()}
    return tuple(Change(name, "new", file.size, file.sha256) for name, file in found.items())


def hub_target(repo: str, given: Mapping[str, Any]) -> Target:
    """Where on the Hub, and how."""
    named = ("private", "revision", "pull_request", "tag", "message")
    return Target(repo, **{name: given[name] for name in named if given.get(name) is not None})
