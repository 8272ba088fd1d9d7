"""Baselines: simpler methods, measured on the evaluated splits of the same data."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.dummy import DummyRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from torch import Tensor, empty

from qkv.scripts.data.collate import IGNORED
from qkv.scripts.data.corpus import Corpus, Splits, prefixed
from qkv.scripts.data.text_columns import partners_of
from qkv.scripts.example_data.peptides import fold
from qkv.scripts.lab.example_baselines import PROMPTED, Baselines, evaluated, support_vectors
from qkv.scripts.tasks.causal_lm import CausalLM, ResponseLM, TargetLM
from qkv.scripts.tasks.contact_prediction import ContactPrediction
from qkv.scripts.tasks.image_classification import ImageClassification
from qkv.scripts.tasks.masked_lm import MaskedLM
from qkv.scripts.tasks.metrics import measure
from qkv.scripts.tasks.prompted_generation import PromptedGeneration
from qkv.scripts.tasks.protein_folding import ALPHA, ProteinFolding
from qkv.scripts.tasks.question_answering import QuestionAnswering
from qkv.scripts.tasks.seq2seq import Seq2Seq
from qkv.scripts.tasks.task import Task
from qkv.scripts.tasks.text_classification import TextClassification, TextRegression
from qkv.scripts.tasks.token_classification import TokenClassification

ORDER = 5  # of the n-gram model
SEPARATOR = "\x00"  # between documents


def baselines(task: Task) -> Baselines:
    """Measure simpler methods on the evaluated splits of a task; none of a stream."""
    made: Any = next((make for kind, make in BASELINES.items() if isinstance(task, kind)), None)
    return {} if made is None or getattr(task.data, "stream", None) else made(task)


def joined(corpus: Corpus, split: str) -> list[str]:
    """Return the texts of a split, of pairs both in one."""
    pairs = corpus.pairs.get(split)
    return corpus.texts[split] if pairs is None else list(map("\n".join, zip(corpus.texts[split], pairs, strict=True)))


def fitted(corpus: Corpus, machines: Mapping[str, Any], targets: Splits[Any], metrics: Sequence[str]) -> Baselines:
    """Fit models of scikit-learn to texts, and measure them; texts without words fit none."""
    scores: Baselines = {}
    for name, machine in machines.items():
        try:
            machine.fit(joined(corpus, "train"), targets["train"])
        except ValueError as error:
            if "no terms remain" not in str(error) and "empty vocabulary" not in str(error):
                raise
            continue
        scores[name] = {
            split: measure(metrics, machine.predict(joined(corpus, split)).tolist(), targets[split])
            for split in evaluated(corpus)
        }
    return scores


def linear_regression(corpus: Corpus, metrics: Sequence[str]) -> Baselines:
    """Measure the mean of the training split, and ridge regression on TF-IDF of words."""
    machines = {
        "the mean of the training": DummyRegressor(),
        "TF-IDF of words + ridge regression (scikit-learn)": make_pipeline(TfidfVectorizer(sublinear_tf=True), Ridge()),
    }
    return fitted(corpus, machines, corpus.numbers, metrics)


def linear_models(corpus: Corpus) -> Baselines:
    """Fit logistic regression on TF-IDF of words and of characters."""
    units: dict[str, dict[str, Any]] = {"words": {}, "characters": {"analyzer": "char_wb", "ngram_range": (2, 4)}}
    machines = {
        f"TF-IDF of {unit} + logistic regression (scikit-learn)": make_pipeline(
            TfidfVectorizer(sublinear_tf=True, min_df=2, **options), LogisticRegression(C=10.0, max_iter=1000)
        )
        for unit, options in units.items()
    }
    return fitted(corpus, machines, corpus.labels, ("accuracy", "f1_macro"))


def copy_source(corpus: Corpus, metrics: Sequence[str]) -> Baselines:
    """Score the text itself, without the prefix of a task, as if it were its target."""
    scores = {}
    for name in evaluated(corpus):
        prefixes = [prefixed(task, "") for task in corpus.tasks.get(name, [])] or [""] * len(corpus.texts[name])
        copies = [text.removeprefix(prefix) for text, prefix in zip(corpus.texts[name], prefixes, strict=True)]
        scores[name] = measure(metrics, copies, corpus.targets[name])
    return {"the source, copied": scores}


def most_frequent_token(train: Any, special: Tensor, splits: Mapping[str, Any]) -> Baselines:
    """Predict the most frequent token of the training split everywhere."""
    tokens = train.columns.get("labels", train.columns["input_ids"])
    counts = tokens[tokens != IGNORED].bincount()
    counts[special[special < len(counts)]] = 0
    best = int(counts.argmax())
    scores = {}
    for name, split in splits.items():
        labels = split.columns["labels"]
        wanted = labels[labels != IGNORED]
        scores[name] = {"accuracy": float((wanted == best).double().mean())}
    return {"the most frequent token": scores}


def contact_map(structure: str) -> np.ndarray:
    """Return 1 for two residues that pair, else 0 (L, L)."""
    return (partners_of(structure)[:, None] == np.arange(len(structure))).astype(np.int64)


def pair_frequencies(sequences: Sequence[str], structures: Sequence[str]) -> Callable[[str], np.ndarray]:
    """Count pairs by residues and distance, and return the function that maps a chain to its frequencies (L, L)."""
    numbers = {letter: number for number, letter in enumerate(sorted(set("".join(sequences))), start=1)}
    longest = max(map(len, sequences))
    counts = np.zeros((2, len(numbers) + 1, len(numbers) + 1, longest))

    def cells(sequence: str) -> tuple[np.ndarray, ...]:
        letters, places = np.array([numbers.get(letter, 0) for letter in sequence]), np.arange(len(sequence))
        distances = np.abs(places[:, None] - places).clip(max=longest - 1)
        ordered = np.where(places[:, None] <= places, letters[:, None], letters)
        return ordered, ordered.T, distances

    for sequence, structure in zip(sequences, structures, strict=True):
        np.add.at(counts[0], cells(sequence), 1)
        np.add.at(counts[1], cells(sequence), contact_map(structure))
    frequencies = counts[1] / counts[0].clip(min=1)
    return lambda sequence: frequencies[cells(sequence)]


def byte_ngram(corpus: Corpus) -> Baselines:
    """Measure the bits per byte of an n-gram model of bytes."""
    train = as_bytes(corpus.texts["train"])
    scores = {name: {"bits_per_byte": bits(train, as_bytes(corpus.texts[name]))} for name in evaluated(corpus)}
    return {f"{ORDER}-gram of bytes": scores}


def as_bytes(texts: Sequence[str]) -> np.ndarray:
    """Return documents as numbers from 0 to 255."""
    return np.frombuffer(SEPARATOR.join(texts).encode(), dtype=np.uint8).astype(np.int64)


def bits(train: np.ndarray, test: np.ndarray, order: int = ORDER) -> float:
    """Return the mean bits of a byte of `test` under n-grams of `train`, which back off to shorter contexts.

    Source: Witten & Bell 1991, method C, https://doi.org/10.1109/18.87000
    """
    probability = np.full(len(test), 1 / 256)
    for length in range(order):
        seen, given = grams(train, length + 1), grams(test, length + 1)
        pair_count = counted(seen, given)
        # How often the context came, and how many different bytes followed it.
        context_count = counted(seen >> 8, given >> 8)
        kinds = counted(np.unique(seen) >> 8, given >> 8)
        reached = np.arange(len(test)) >= length
        total = np.maximum(context_count + kinds, 1)
        better = (pair_count + kinds * probability) / total
        probability = np.where(reached & (context_count > 0), better, probability)
    return float(-np.log2(probability).mean())


def grams(values: np.ndarray, length: int) -> np.ndarray:
    """Return the last `length` bytes up to each place as one number; bytes before the first are 0."""
    numbers = np.zeros(len(values), dtype=np.int64)
    for back in range(length):
        numbers[back:] |= values[: len(values) - back] << (8 * back)
    return numbers


def counted(seen: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Count how often each asked number was seen."""
    values, counts = np.unique(seen, return_counts=True)
    if not len(values):
        return np.zeros(len(asked), dtype=np.int64)
    place = np.minimum(np.searchsorted(values, asked), len(values) - 1)
    return np.where(values[place] == asked, counts[place], 0)


def frequent_tags(task: TokenClassification) -> Baselines:
    """Predict the most frequent tag of each word."""
    words, numbers = task.tagged.texts, task.tagged.labels
    tags: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for row, own in zip(words["train"], numbers["train"], strict=True):
        for word, tag in zip(row, own, strict=True):
            tags[word][tag] += 1
    most = sum(tags.values(), Counter()).most_common(1)[0][0]
    best = {word: counts.most_common(1)[0][0] for word, counts in tags.items()}
    scores = {}
    for name in task.splits:
        predicted = [[task.labels[best.get(word, most)] for word in row] for row in words[name]]
        wanted = [[task.labels[tag] for tag in row] for row in numbers[name]]
        rows = [predicted, wanted] if task.entities else [sum(predicted, []), sum(wanted, [])]
        scores[name] = measure(task.metrics, *rows)
    return {"the most frequent tag of each word": scores}


def contact_frequencies(task: ContactPrediction) -> Baselines:
    """Predict how often two residues pair at their distance; beside it a perfect map."""
    sequences, structures = task.chains.texts, task.chains.targets
    frequency, seen, perfect = pair_frequencies(sequences["train"], structures["train"]), {}, {}
    for name in task.splits:
        maps = list(map(contact_map, structures[name]))
        seen[name] = measure(task.metrics, list(map(frequency, sequences[name])), maps)
        perfect[name] = measure(task.metrics, maps, maps)
    return {"how often two residues pair at their distance": seen, "a perfect map": perfect}


def one_segment(task: ProteinFolding) -> Baselines:
    """Fold every chain into one helix, or into one strand, whatever its residues are."""
    scores: Baselines = {}
    for name, letter in {"one helix": "A", "one strand": "V"}.items():
        scores[name] = {}
        for split, examples in task.splits.items():
            labels = examples.columns["labels"][:, :, ALPHA].numpy()
            true = [own[:length] for own, length in zip(labels, examples.lengths, strict=True)]
            segments = [{"ca": fold([letter * len(own)])[0][:, ALPHA], "plddt": np.ones(len(own))} for own in true]
            found = measure(task.metrics, segments, true)
            scores[name][split] = {metric: found[metric] for metric in ("lddt_ca", "rmsd")}
    return scores


def nearest_word(context: str, question: str) -> str:
    """Return the name or number of a context that is nearest to a name of the question; empty without one."""
    words, asked = ([word.strip(",.?!") for word in text.split()] for text in (context, question))
    marked = [place for place, word in enumerate(words) if word[:1].isupper() or word.isdigit()]
    there = [place for place in marked if words[place] in asked]
    others = [place for place in marked if words[place] not in asked]
    near = [(abs(place - other), words[other]) for place in there for other in others]
    return min(near, default=(0, ""))[1]


def simple_answers(task: QuestionAnswering) -> Baselines:
    """Never answer, and answer by the name or number that is nearest to a name of the question."""
    never, nearest = {}, {}
    for name, split in task.splits.items():
        rows = [task.rows[number] for number in split.columns["_row"].tolist()]
        right = [[text for text, _ in answers] for *_, answers in rows]
        never[name] = measure(task.metrics, [""] * len(rows), right)
        nearest[name] = measure(task.metrics, [nearest_word(*row[:2]) for row in rows], right)
    return {"no answer to any": never, "the name or number nearest to the name that is asked about": nearest}


BASELINES: dict[type[Task], Callable[[Any], Baselines]] = {
    TargetLM: lambda task: {},
    ResponseLM: lambda task: most_frequent_token(task.train, empty(0).long(), task.splits),
    CausalLM: lambda task: byte_ngram(task.corpus),
    PromptedGeneration: lambda task: PROMPTED[task.corpus.name](task),
    MaskedLM: lambda task: most_frequent_token(task.train, task.special, task.splits),
    TextClassification: lambda task: linear_models(task.corpus),
    TextRegression: lambda task: linear_regression(task.corpus, task.metrics),
    TokenClassification: frequent_tags,
    ContactPrediction: contact_frequencies,
    ProteinFolding: lambda task: one_segment(task) if task.data.name == "peptides" else {},
    QuestionAnswering: simple_answers,
    ImageClassification: lambda task: support_vectors(task.train, task.splits) if task.data.name == "digits" else {},
    Seq2Seq: lambda task: copy_source(task.corpus, task.metrics),
}
