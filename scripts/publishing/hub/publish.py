"""Publish a model on the Hub or in a folder: build a package, scan it, send it in one commit."""

import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from httpx2 import HTTPError
from huggingface_hub import CommitInfo, HfApi
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils._validators import validate_repo_id
from transformers import PreTrainedModel

from qkv.scripts.common.files import staged
from qkv.scripts.common.phases import say
from qkv.scripts.data.splits.seen import SEEN
from qkv.scripts.publishing.hub.options import OF_THE_HUB, Published, PublishOptions
from qkv.scripts.publishing.hub.package import ModelSource, build
from qkv.scripts.publishing.hub.screen import PUBLISHED, scan
from qkv.scripts.publishing.integrity.manifest import SIGNATURE, identity
from qkv.scripts.publishing.integrity.signature import sign, signer

# Files of a run, and folders and files of tools.
OF_RUNS = r"\.|__pycache__|(record|certificate)\.json$|metrics\.jsonl|bad-records|checkpoints|evaluation-|" + re.escape(
    SEEN
)


class PublishError(RuntimeError):
    """The Hub rejected a model, for the reason in one sentence."""


def publish(source: ModelSource, target: str | os.PathLike[str], **options: Any) -> Published:
    """Put a model where `from_pretrained` finds it without qkv: on the Hub in one commit, or in a new folder.

    `source` is a model, its folder, a run folder, or a folder that was built before; `options` are the fields of
    `PublishOptions`. Everything is scanned before any of it leaves this machine, and the target holds the old or the
    new, never a mixture. UnfitError names a file that may not be published; PublishError says in a sentence why the Hub
    did not take it.
    """
    chosen, place = PublishOptions(**options), destination(target)
    if isinstance(place, Path):
        reason = f"{place} is a folder, and {{}} is for the Hub; leave it out, or name user/model"
        chosen.check_unset(OF_THE_HUB, reason)
    public = [] if isinstance(place, Path) else [place, *place.split("/")]
    signing = None if chosen.sign is None else signer(chosen.sign)
    with workspace(place) as folder:
        built = build(source, folder, place, chosen)
        chosen.step("scan the folder")
        files = scan(built, public=[*public, *chosen.allow])
        for name, path in files.items() if built != folder else ():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(place, Path):
                shutil.copyfile(path, folder / name)
            else:  # it is read once
                (folder / name).symlink_to(path.resolve())
        tell_of_others(source, files)
        if signing:
            chosen.step("sign the files")
            sign(signing, folder)
        files |= {SIGNATURE: folder / SIGNATURE} if signing else {}
        sizes = {name: (folder / name).stat().st_size for name in files}
        result = Published(identity(folder), sizes, as_built=built != folder)
        if isinstance(place, Path):
            return replace(result, folder=place)
        chosen.step("send to the Hub")
        made = send(folder, place, chosen)
        return replace(result, url=made.pr_url or made.commit_url, commit=made.oid)


def tell_of_others(source: ModelSource, files: Collection[str]) -> None:
    """Print the files beside the model that do not go along, apart from those that a training writes."""
    beside = [] if isinstance(source, PreTrainedModel) else sorted(os.listdir(Path(source).expanduser()))
    known = [OF_RUNS, *(f"({kind})$" for kind in PUBLISHED.values())]
    if others := [name for name in beside if name not in files and not any(re.match(kind, name) for kind in known)]:
        say(f"left out, as of no kind that a published model needs: {', '.join(others)}")


def destination(target: str | os.PathLike[str]) -> Path | str:
    """Return a folder if the target is a path, looks like one, or is there; otherwise the name of a repository."""
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


@contextmanager
def workspace(place: Path | str) -> Iterator[Path]:
    """Yield an empty folder to build in: one that becomes the target, or a temporary one for the Hub."""
    if isinstance(place, Path):
        with staged(place) as folder:
            yield folder
    else:
        with tempfile.TemporaryDirectory(prefix="qkv-") as name:
            folder = Path(name) / place.rpartition("/")[2]  # a signature holds the name of the folder
            folder.mkdir()
            yield folder


def send(folder: Path, repo: str, options: PublishOptions) -> CommitInfo:
    """Make a branch hold exactly the files of a folder, by one commit of huggingface_hub, and tag it.

    The same files again are no commit, and a push by somebody else in the meantime is not overwritten.
    """
    api, branch = HfApi(library_name="qkv"), options.revision or "main"
    try:
        api.create_repo(repo, private=options.private, exist_ok=True)
        check_settings(api, repo, options)
        if options.revision and not api.revision_exists(repo, branch):
            api.create_branch(repo, branch=branch)
        made = api.upload_folder(
            repo_id=repo,
            folder_path=folder,
            commit_message=options.message or "Publish with qkv",
            revision=branch,
            create_pr=options.pull_request,
            parent_commit=api.repo_info(repo, revision=branch).sha,
            delete_patterns="*",
        )
        if options.tag:
            api.create_tag(repo, tag=options.tag, revision=made.oid)
    except (HTTPError, OSError, RuntimeError) as error:
        raise PublishError(
            f"{repo} could not be published, and is as it was or wholly new: {' '.join(str(error).split())}; mend that "
            "and run the same command again, which sends only the missing files"
        ) from error
    return made


def check_settings(api: HfApi, repo: str, options: PublishOptions) -> None:
    """Raise ValueError where a repository has another visibility, or the tag already."""
    is_private = api.repo_info(repo).private
    if options.private not in (None, is_private):
        is_so, is_not = ("private", "public") if is_private else ("public", "private")
        raise ValueError(f"{repo} is {is_so} and was to be {is_not}; change its settings, or leave --{is_not} out")
    for name in {options.revision, options.tag} & {each.name for each in api.list_repo_refs(repo).tags}:
        raise ValueError(f"{name} is a tag of {repo}, and tags stay; choose another")
