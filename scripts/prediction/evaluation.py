"""Evaluate a model row by row: what it answers, what is right, how certain it is, and the metrics of any rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from accelerate.utils import send_to_device
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric
from torch import Tensor

from qkv.scripts.data.collate import IGNORED
from qkv.scripts.data.examples import Record, model_inputs
from qkv.scripts.prediction.source import Source
from qkv.scripts.tasks.metrics import SCORERS
from qkv.scripts.tasks.task import Answer, Task
from qkv.scripts.training.evaluation import no_cache
from qkv.scripts.training.progress import progress_display

NATS = "loss"


@dataclass(frozen=True)
class Evaluation:
    """The sums and answers of a model for each row of a test, and the rows as a table shows them."""

    task: Task
    sums: list[dict[str, float]]
    answers: list[list[Answer]]
    rows: list[Record]
    labels: list[str]

    @cached_property
    def table(self) -> tuple[list[str], NDArray[np.float64]]:
        """Return the names of the sums, and those of each row."""
        names = sorted({name for own in self.sums for name in own})
        return names, np.array([[own.get(name, 0.0) for name in names] for own in self.sums])

    def metrics(self, chosen: Sequence[int] | None = None, wanted: Sequence[str] | None = None) -> dict[str, float]:
        """Return the metrics of the task over some rows, which may be there several times, or over all of them.

        `wanted` are those of the task's named metrics that are computed, all by default.
        """
        numbers = range(len(self.rows)) if chosen is None else chosen
        names, values_of_rows = self.table
        totals = dict(zip(names, values_of_rows[list(numbers)].sum(0).tolist(), strict=True))
        values = self.task.measure(totals, [answer for number in numbers for answer in self.answers[number]], wanted)
        if self.task.in_batch_negatives:
            values.pop("loss")  # of one pair alone there is none
        return {name: value for name, value in values.items() if not name.startswith("_")}


@torch.no_grad()
def evaluate_rows(source: Source, task: Task) -> Evaluation:
    """Evaluate each row of a test by itself; only what is generated is generated in batches, as in training."""
    split, model = task.splits["test"], source.model.eval()
    size = source.record.get("recipe", {}).get("batch_size", 16)
    sums: list[dict[str, float]] = []
    answers: list[list[Answer]] = []
    rows: list[Record] = []
    with progress_display("rows", len(split), is_main=True, unit="row") as progress:
        for start in range(0, len(split), size):
            records = split.__getitems__(range(start, min(start + size, len(split))))
            together = generated(task, model, records)
            for place, record in enumerate(records):
                batch = send_to_device(task.collate([record], None), model.device)
                outputs = model(**model_inputs(batch), **no_cache(model))
                targets = int(torch.as_tensor(task.count(batch)).flatten()[-1])
                own = task.answer(model, outputs, batch) if together is None else [together[place]]
                # A text of which nothing is masked has no targets, and a mean over none of them is no number.
                loss = float(outputs.loss) * targets if outputs.loss is not None and targets else 0.0
                scored = {name: float(value) for name, value in task.score(outputs, batch).items()}
                sums.append({"targets": targets, NATS: loss} | scored)
                answers.append(own)
                row = {"row": start + place + 1, **described(task, record, outputs, batch, own)}
                if not task.in_batch_negatives:
                    row["loss"] = sums[-1][NATS] / max(targets, 1)
                rows.append(row)
            progress.update(start + len(records), "")
    return Evaluation(task, sums, answers, rows, list(task.labels))


def generated(task: Task, model: Any, records: Sequence[Record]) -> list[Answer] | None:
    """Return what is generated for a batch of rows; None where nothing is."""
    if not hasattr(task, "limit") and not task.generation:
        return None
    batch = send_to_device(task.collate(records, None), model.device)
    return task.answer(model, None, batch)


def described(task: Task, record: Record, outputs: Any, batch: Any, answers: Sequence[Answer]) -> Record:
    """Return the columns of a row: what was read, what is right, what was answered, and how certain that is."""
    row: Record = {}
    if "input_ids" in record and hasattr(task.processor, "decode"):
        row["text"] = task.processor.decode(batch["input_ids"][0], skip_special_tokens=True)
    logits = getattr(outputs, "logits", None)
    if task.labels and isinstance(logits, Tensor) and logits.dim() == 2:
        own = logits[0].float().softmax(-1)
        row["reference"], row["prediction"] = task.labels[int(batch["labels"][0])], task.labels[int(own.argmax())]
    elif len(answers) == 1:
        captions = getattr(task, "captions", None)
        row["reference"], row["prediction"] = (captions[own] if captions else own for own in reversed(answers[0]))
    elif answers:
        row["reference"], row["prediction"] = [pair[1] for pair in answers], [pair[0] for pair in answers]
    if "prediction" in row and not isinstance(row["prediction"], float | dict):
        row["correct"] = row["prediction"] == row["reference"]
    score = certainty(logits, batch)
    return row | ({} if score is None else {"score": score})


def certainty(logits: Any, batch: Any) -> float | None:
    """Return the probability of the answer, of several tokens the mean; None where there are no classes."""
    if not isinstance(logits, Tensor) or logits.dim() not in (2, 3) or logits.shape[-1] == 1:
        return None
    best = logits.float().softmax(-1).amax(-1)[0]
    labels = batch.get("labels") if logits.dim() == 3 else None
    if isinstance(labels, Tensor) and labels.shape[1:] == best.shape and (labels[0] != IGNORED).any():
        best = best[labels[0] != IGNORED]
    return float(best.mean())


def intervals(evaluation: Evaluation, resamples: int, seed: int) -> dict[str, tuple[float, float]]:
    """Return the 95 % interval of each metric, by a bootstrap over rows; none for a single row.

    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, §13.3, percentile intervals
    """
    if len(evaluation.rows) < 2:
        return {}
    return intervals_of(own for (own,) in bootstrap([evaluation], resamples, seed))


def bootstrap(evaluations: Sequence[Evaluation], resamples: int, seed: int) -> Iterator[list[dict[str, float]]]:
    """Draw rows with replacement, the same ones of each evaluation, and yield the metrics of each over them."""
    count, measures = len(evaluations[0].rows), [resampled(each) for each in evaluations]
    draws = np.random.default_rng(seed).integers(0, count, (resamples, count))
    with progress_display("resamples", resamples, is_main=True, unit="resample") as progress:
        for number, chosen in enumerate(draws, 1):
            yield [measure(chosen) for measure in measures]
            progress.update(number, "")


def intervals_of(resamples: Iterable[Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """Return the interval of each value but those that some resamples lack."""
    values: dict[str, list[float]] = {}
    for own in resamples:
        for name, value in own.items():
            values.setdefault(name, []).append(value)
    most = max(map(len, values.values()), default=0)
    return {name: interval(own) for name, own in values.items() if len(own) == most}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return what the middle 95 % of values lie between."""
    low, high = np.quantile(np.asarray(values, dtype=np.float64), (0.025, 0.975))
    return float(low), float(high)


def resampled(evaluation: Evaluation) -> Any:
    """Return the function that measures chosen rows; scores of corpora from what each text adds to them."""
    names = [name for name in evaluation.task.metrics if name in SCORERS]
    pairs = [own[0] for own in evaluation.answers] if names else []
    counts = {name: corpus_counts(SCORERS[name](), pairs) for name in names}
    others = [name for name in evaluation.task.metrics if name not in SCORERS]

    def measure(chosen: NDArray[np.int64]) -> dict[str, float]:
        values = evaluation.metrics(chosen.tolist(), others)
        sums = {name: own[chosen].sum(0).tolist() for name, (_, own) in counts.items()}
        return values | {name: counts[name][0]._compute_score_from_stats(own).score for name, own in sums.items()}

    return measure


def corpus_counts(scorer: Metric, pairs: Sequence[Answer]) -> tuple[Any, NDArray[np.int64]]:
    """Return a scorer of sacrebleu and what each text adds to its score, from which its own bootstrap resamples."""
    texts, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return scorer, np.asarray(scorer._extract_corpus_statistics(texts, [references]), dtype=np.int64)


def calibration_error(scores: Sequence[float], correct: Sequence[bool], bins: int = 10) -> float:
    """Return the expected calibration error: how far certainty is from the share of right rows, over bins of certainty.

    Source: Guo et al. 2017, On Calibration of Modern Neural Networks, §2, https://arxiv.org/abs/1706.04599
    """
    return sum(count * abs(sure - right) for sure, right, count in reliability(scores, correct, bins)) / len(scores)


def reliability(scores: Sequence[float], correct: Sequence[bool], bins: int = 10) -> list[tuple[float, float, int]]:
    """Return mean certainty, share of right rows and number of rows of each bin of certainty that has some."""
    values, right = np.asarray(scores), np.asarray(correct, dtype=float)
    places = np.minimum((values * bins).astype(int), bins - 1)
    own = [places == number for number in range(bins)]
    return [(float(values[each].mean()), float(right[each].mean()), int(each.sum())) for each in own if each.any()]
