"""Train a recipe, draw, write the card, and load the run folder without qkv."""

from argparse import Namespace
from typing import Any

from qkv.scripts import train
from qkv.scripts.attention_view.run_figures import draw_run
from qkv.scripts.common.inspector import Job, identical, outputs
from qkv.scripts.data.examples import Batch, model_inputs
from qkv.scripts.publishing.export.run_folder import complete_run, write_run_card
from qkv.scripts.publishing.integrity.loading import auto_class, load_in_clean_process
from qkv.scripts.training.run import Run

COMPARED = 16  # examples of each split


def run(arguments: Namespace) -> None:
    """Train, complete the run, and print one table; RuntimeError when the folder does not load to the same model."""
    train.run(arguments, complete)


def complete(finished: Run) -> None:
    """Draw, describe, and load the folder without qkv; RuntimeError when it is not the same model."""
    finished.record["pictures"] |= draw_run(finished.model, finished.task, finished.folder)
    finished.save()
    complete_run(finished.folder, finished.model)
    for split in finished.task.splits:
        compare(finished, split)
    finished.record["reload"] = [*finished.task.splits]
    finished.save()
    write_run_card(finished.folder)


def compare(finished: Run, split: str) -> None:
    """Raise RuntimeError unless the run folder, loaded without qkv, has the outputs of the model on some examples."""
    task, model, examples = finished.task, finished.model, finished.task.splits[split]
    columns = task.collate(examples.__getitems__(range(min(COMPARED, len(examples)))), None)
    given = {name: value for name, value in model_inputs(columns).items() if name != "labels"}
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        shift: Any = model.prepare_decoder_input_ids_from_labels
        given["decoder_input_ids"] = shift(columns["labels"])
    auto = auto_class(finished.record["config"], type(model).__name__) or "AutoModel"
    (loaded,) = load_in_clean_process([Job(finished.folder, auto, given)])
    check_equal(loaded.outputs, outputs(model, given))


def check_equal(actual: Batch, expected: Batch) -> None:
    """Raise RuntimeError unless outputs are the same bit by bit."""
    for name, value in expected.items():
        if name not in actual or not identical(actual[name], value):
            raise RuntimeError(f"the run folder loads to a model with other {name}")
