"""Write the code into the folders that transformers itself saves and pushes.

`save_pretrained` and `push_to_hub` do so by themselves; a `Trainer` that pushes checkpoints, with `CodeCallback`.
"""

import re
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging

from qkv.modeling.base import QkvPreTrainedModel
from qkv.scripts.publishing.export.flatten import HEADER, flatten
from qkv.scripts.publishing.export.folder import write_code

# Weights of a whole model; adapters have other names.
WEIGHTS = re.compile(r"(pytorch_)?model[.-].*(safetensors|bin)(\.index\.json)?")

logger = logging.get_logger(__name__)


class CodeCallback(TrainerCallback):
    """Send the code with the checkpoints that a `Trainer` pushes, too: `Trainer(…, callbacks=[CodeCallback()])`."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write the code into the folder that is pushed; ValueError for code that cannot be copied."""
        model = kwargs["model"]
        if isinstance(model, QkvPreTrainedModel) and state.is_world_process_zero and args.output_dir is not None:
            Path(args.output_dir).mkdir(parents=True, exist_ok=True)
            write_code(flatten(model.config, every_word=True), Path(args.output_dir))


def save_code(model: QkvPreTrainedModel, folder: Path) -> None:
    """Write the code of a whole model into its saved folder, or warn where it cannot be copied."""
    if not getattr(model.config, "auto_map", None):
        return
    try:
        code = flatten(model.config, every_word=True)
        for path in (folder / name for name in code.files):
            start = HEADER.partition("{")[0]
            if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(start):
                raise ValueError(f"{path} is not a file that qkv wrote; save into another folder")
        write_code(code, folder)
    except ValueError as error:
        logger.warning(f"{folder} was saved without its code and loads only where that is imported: {error}")


def complete(model: QkvPreTrainedModel, folder: Path, repo: str, **options: Any) -> None:
    """Write the code into a saved folder that is about to be pushed.

    ValueError for weights in the repository that a push would leave: transformers prefers a single file to shards.
    """
    api, revision = HfApi(token=options.get("token")), options.get("revision")
    if revision is not None and not api.revision_exists(repo, revision):
        revision = None
    there = set(filter(WEIGHTS.fullmatch, api.list_repo_files(repo, revision=revision)))
    ours = set(filter(WEIGHTS.fullmatch, (path.name for path in folder.iterdir())))
    if ours and (left := sorted(there - ours)):
        raise ValueError(
            f"{repo} holds {', '.join(left)}, which this push would leave beside the new weights, to be loaded in "
            "their place; delete them there first, or publish with `qkv publish`, which does"
        )
    write_code(flatten(model.config, every_word=True), folder)
