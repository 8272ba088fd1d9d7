"""Metrics of `evaluate` that need no download, computed by the libraries that define them.

Each is made by name from METRICS, keeps everything in memory, and takes `predictions` and `references`:
`METRICS["bleu"]().compute(predictions=["Le chat."], references=["Le chat."])`.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from itertools import count, zip_longest
from typing import Any, ClassVar

import evaluate
import jiwer
from datasets import Features, Value
from datasets import Sequence as Row
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from seqeval.metrics import accuracy_score as tag_accuracy
from seqeval.metrics import f1_score as span_f1
from seqeval.metrics import precision_score as span_precision
from seqeval.metrics import recall_score as span_recall
from sklearn.metrics import accuracy_score, f1_score

TEXT, NUMBER, REAL = Value("string"), Value("int64"), Value("float64")


class Local(evaluate.Metric):  # type: ignore[misc]
    """A metric that downloads nothing and writes no file."""

    kinds: ClassVar[tuple[Any, Any]] = (TEXT, TEXT)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"keep_in_memory": True, **kwargs})

    def _info(self) -> evaluate.MetricInfo:
        predictions, references = self.kinds
        features = Features({"predictions": predictions, "references": references})
        return evaluate.MetricInfo(
            description=type(self).__doc__ or "", citation="", inputs_description="", features=features
        )


class Accuracy(Local):
    """Share of right classes."""

    kinds = (NUMBER, NUMBER)

    def _compute(self, predictions: Sequence[int], references: Sequence[int]) -> dict[str, float]:
        return {"accuracy": float(accuracy_score(references, predictions))}


class MacroF1(Local):
    """Mean F1 of the classes."""

    kinds = (NUMBER, NUMBER)
    average: ClassVar[str] = "macro"

    def _compute(self, predictions: Sequence[int], references: Sequence[int]) -> dict[str, float]:
        score = f1_score(references, predictions, average=self.average, zero_division=0)
        return {f"f1_{self.average}": float(score)}


class WeightedF1(MacroF1):
    """F1 of each class, weighted by its number of references."""

    average = "weighted"


class ExactMatch(Local):
    """Share of texts that equal the reference."""

    def _compute(self, predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        right = sum(one == other for one, other in zip(predictions, references, strict=True))
        return {"exact_match": right / len(references)}


class Perplexity(Local):
    """e to the mean negative log-likelihood of a token: `predictions` are sums in nats, `references` token counts."""

    kinds = (REAL, NUMBER)

    def _compute(self, predictions: Sequence[float], references: Sequence[int]) -> dict[str, float]:
        nats = math.fsum(predictions) / sum(references)
        # A diverged model overflows a float.
        return {"perplexity": math.exp(nats) if nats < 700 else math.inf}


class BitsPerByte(Local):
    """Bits per byte of text: `predictions` are sums in nats, `references` byte counts.

    Unlike perplexity it compares models of different vocabularies.
    """

    kinds = (REAL, NUMBER)

    def _compute(self, predictions: Sequence[float], references: Sequence[int]) -> dict[str, float]:
        return {"bits_per_byte": math.fsum(predictions) / math.log(2) / sum(references)}


class Bleu(Local):
    """BLEU of a corpus from 0 to 100; a reference is a text, or a list of them.

    Source: Post 2018, A Call for Clarity in Reporting BLEU Scores, https://arxiv.org/abs/1804.08771
    """

    scorer: ClassVar[Any] = BLEU

    def _info(self) -> evaluate.MetricInfo:
        info = super()._info()
        info.features = [info.features, Features({"predictions": TEXT, "references": Row(TEXT)})]
        return info

    def _compute(self, predictions: Sequence[str], references: Sequence[Any]) -> dict[str, Any]:
        several = [[text] if isinstance(text, str) else text for text in references]
        scorer = self.scorer()
        score = scorer.corpus_score(predictions, [list(column) for column in zip_longest(*several)])
        name = self.scorer.__name__.lower()
        return {name: score.score, f"{name}_signature": str(scorer.get_signature())}


class ChrF(Bleu):
    """chrF2 of a corpus, from 0 to 100. Source: Popović 2015, https://aclanthology.org/W15-3049"""

    scorer = CHRF


class WordErrorRate(Local):
    """Word error rate: insertions, deletions and substitutions per word of the references."""

    def _compute(self, predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        return {"wer": float(jiwer.wer(list(references), list(predictions)))}


class CharacterErrorRate(Local):
    """Character error rate: insertions, deletions and substitutions per character of the references."""

    def _compute(self, predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        return {"cer": float(jiwer.cer(list(references), list(predictions)))}


class SeqEval(Local):
    """Named entities in rows of IOB tags: one is right when its type and both ends are."""

    kinds = (Row(TEXT), Row(TEXT))

    def _compute(self, predictions: list[list[str]], references: list[list[str]]) -> dict[str, float]:
        measures = {"precision": span_precision, "recall": span_recall, "f1": span_f1}
        scores = {name: float(measure(references, predictions, zero_division=0)) for name, measure in measures.items()}
        return {**scores, "accuracy": float(tag_accuracy(references, predictions))}


class AveragePrecision(Local):
    """Average precision of boxes as COCO has it: over classes, recalls, and overlaps (IoU) from 0.5 to 0.95.

    `ap50` and `ap75` are of one overlap. Predictions of each image are `boxes` (left, top, right, bottom in pixels),
    `labels` and `scores`, references boxes and labels.

    Source: Lin et al. 2014, Microsoft COCO, §5, https://arxiv.org/abs/1405.0312, computed by its authors' pycocotools
    """

    kinds = (
        {"boxes": Row(Row(REAL)), "labels": Row(NUMBER), "scores": Row(REAL)},
        {"boxes": Row(Row(REAL)), "labels": Row(NUMBER)},
    )

    def _compute(self, predictions: Sequence[Any], references: Sequence[Any]) -> dict[str, float]:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval

        names = ("ap", "ap50", "ap75")
        there, detections = COCO(), list(annotations(predictions))
        classes = sorted({label for image in references for label in image["labels"]})
        images = [{"id": number} for number in range(len(references))]
        there.dataset = {"images": images, "annotations": list(annotations(references)),
                         "categories": [{"id": label} for label in classes]}  # fmt: skip
        with redirect_stdout(StringIO()):
            there.createIndex()
            scorer = COCOeval(there, there.loadRes(detections) if detections else COCO(), "bbox")
            scorer.evaluate()
            scorer.accumulate()
            scorer.summarize()
        # -1 says that there were no references.
        return {name: float(value) for name, value in zip(names, scorer.stats, strict=False) if value >= 0}


def annotations(images: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield the boxes of images as COCO annotations."""
    number = count(1)
    for image, objects in enumerate(images):
        for place, (left, top, right, bottom) in enumerate(objects["boxes"]):
            box = [left, top, right - left, bottom - top]
            score = {"score": objects["scores"][place]} if "scores" in objects else {}
            yield {"id": next(number), "image_id": image, "category_id": objects["labels"][place], "bbox": box,
                   "area": box[2] * box[3], "iscrowd": 0, **score}  # fmt: skip


METRICS: dict[str, type[Local]] = {
    "accuracy": Accuracy,
    "f1_macro": MacroF1,
    "f1_weighted": WeightedF1,
    "exact_match": ExactMatch,
    "perplexity": Perplexity,
    "bits_per_byte": BitsPerByte,
    "bleu": Bleu,
    "chrf": ChrF,
    "wer": WordErrorRate,
    "cer": CharacterErrorRate,
    "seqeval": SeqEval,
    "average_precision": AveragePrecision,
}


def measure(names: Sequence[str], predictions: Sequence[Any], references: Sequence[Any]) -> dict[str, float]:
    """Compute several metrics; ValueError when there is nothing to score, or not a reference for each."""
    if not len(references) or len(predictions) != len(references):
        raise ValueError(
            f"{', '.join(names)} of {len(predictions)} predictions and {len(references)} references: give as many "
            "of each, and at least one"
        )
    metrics: dict[str, float] = {}
    for name in names:
        values = METRICS[name]().compute(predictions=predictions, references=references)
        metrics |= {key: value for key, value in values.items() if not isinstance(value, str)}
    return metrics


def signatures(names: Sequence[str]) -> dict[str, str]:
    """Return the signatures of sacrebleu's metrics, which say how they were computed."""
    lines = {}
    for name in names:
        if issubclass(METRICS[name], Bleu):
            lines[name] = METRICS[name]().compute(predictions=["a"], references=["a"])[f"{name}_signature"]
    return lines
