"""Simpler methods: each against a figure that one can work out, or a slow version of itself."""

import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from qkv.scripts.data.corpus import Corpus, FoldedChains, paired
from qkv.scripts.data.examples import Columns
from qkv.scripts.data.text_columns import SecondaryStructures, TaggedWords
from qkv.scripts.example_data.peptides import fold
from qkv.scripts.lab import baselines
from qkv.scripts.tasks.contact_prediction import ContactPrediction
from qkv.scripts.tasks.protein_folding import ProteinFolding
from qkv.scripts.tasks.text_classification import TextRegression
from qkv.scripts.tasks.token_classification import TokenClassification
from recipes import recipe_of
from tiny_training import task

RECIPE = recipe_of(architecture="QkvPairForContactPrediction", text=dict(tokenizer="characters", length=32))


def slow_bits(train: bytes, test: bytes, order: int) -> float:
    """Witten-Bell by dictionaries, byte by byte."""
    total = 0.0
    for place, byte in enumerate(test):
        probability = 1 / 256
        for length in range(min(order, place + 1)):
            context = test[place - length : place]
            followers = Counter(train[i] for i in range(length, len(train)) if train[i - length : i] == context)
            if followers:
                kinds, count = len(followers), sum(followers.values())
                probability = (followers[byte] + kinds * probability) / (count + kinds)
        total -= math.log2(probability)
    return total / len(test)


def test_bytes_are_guessed_as_by_hand() -> None:
    train, test = b"the cat sat on the mat. the end", b"the mat sat. a hat"
    found = baselines.bits(*(np.frombuffer(text, np.uint8).astype(np.int64) for text in (train, test)), order=3)
    assert found == pytest.approx(slow_bits(train, test, 3), rel=0.02)
    corpus = Corpus("c", "t", "s", {"train": ["abc" * 50], "test": ["abc" * 9], "validation": ["é"]})
    (splits,) = baselines.byte_ngram(corpus).values()
    assert splits.keys() == {"test", "validation"} and splits["test"]["bits_per_byte"] < 1


def test_words_tell_topics_apart_and_copies_are_right_where_nothing_changes() -> None:
    texts = [f"{word} {number} thing" for number in range(6) for word in ("cat purrs", "dog barks")]
    corpus = Corpus("c", "t", "s", {"train": texts, "test": ["a cat purrs", "a dog barks"]},
                    {"train": [0, 1] * 6, "test": [0, 1]}, ["cat", "dog"])  # fmt: skip
    found = baselines.linear_models(corpus)
    assert len(found) == 2 and all(split["test"] == {"accuracy": 1, "f1_macro": 1} for split in found.values())
    pairs = paired("c", "t", "s", [("a", "a"), ("b", "c")] * 10)
    assert baselines.copy_source(pairs, ["exact_match"]) == {"the source, copied": {"test": {"exact_match": 1.0}}}


def test_pairs_are_as_frequent_as_they_are_in_training() -> None:
    found = baselines.pair_frequencies(["GAAAC", "GAAAC", "CAAAG"], ["(...)", ".....", "(...)"])
    expected = np.zeros((5, 5))
    expected[0, 4] = expected[4, 0] = 1 / 2
    assert np.array_equal(found("GAAAC"), expected)
    assert found("CAAAG")[0, 4] == 1 and found("CUUUGAAA").shape == (8, 8)


@pytest.mark.parametrize(
    ("question", "expected"),
    [("Where does Ada Berg live?", "Oslo"), ("What does Bo own?", "7"), ("Where does Cy live?", ""), ("Berg?", "Ada")],
)
def test_the_nearest_name_or_number_is_an_answer(question: str, expected: str) -> None:
    context = "Ada Berg lives in Oslo, as do many. Bo, who sings, owns 7 cats in all."
    assert baselines.nearest_word(context, question) == expected


def test_the_most_frequent_token_is_no_special_one() -> None:
    train = Columns({"input_ids": torch.tensor([[0, 0, 0, 7, 7, 8]])})
    split = Columns({"labels": torch.tensor([[-100, 7, 8, 7]])})
    found = baselines.most_frequent_token(train, torch.tensor([0, 99]), {"test": split})
    assert found["the most frequent token"]["test"]["accuracy"] == pytest.approx(2 / 3)


def test_tasks_have_the_baselines_of_their_kind() -> None:
    words = {"train": [["Ann", "of", "Köln"], ["no", "one"]], "test": [["Ann", "of", "Xyz"], ["of"]]}
    tags = {"train": [[0, 2, 1], [2, 2]], "test": [[0, 2, 1], [2]]}
    (tagged,) = baselines.baselines(
        TokenClassification(RECIPE, TaggedWords("c", "t", "s", words, tags, ["X", "Y", "Z"]))
    ).values()
    assert tagged["test"]["accuracy"] == 0.75  # but not that of a new word
    numbers = {"train": [0.5, -100.0, 2.0, 3.25], "test": [1.5, -1.0]}
    texts = {"train": ["aaa b", "b", "aaaa", "bb b"], "test": ["aa", "bb"]}
    regression = TextRegression(RECIPE, Corpus("c", "t", "s", texts, numbers=numbers))
    mean = baselines.baselines(regression)["the mean of the training"]["test"]
    assert mean["mae"] == pytest.approx(sum(abs(-23.5625 - each) for each in (1.5, -1.0)) / 2) and mean["pearson"] == 0
    chains, folds = {split: ["GGGAAACCC"] for split in texts}, {split: ["(((...)))"] for split in texts}
    found = baselines.baselines(ContactPrediction(RECIPE, SecondaryStructures("c", "t", "s", chains, targets=folds)))
    assert found["a perfect map"]["test"]["precision_l"] == 1 / 3
    assert found["how often two residues pair at their distance"]["test"]["precision_l5"] == 1
    regression.data = replace(regression.data, stream=print)
    assert baselines.baselines(regression) == {} == baselines.baselines(task())


def test_one_segment_is_right_where_a_chain_is_one() -> None:
    recipe = recipe_of(architecture="QkvFoldingModel", text=dict(tokenizer="residues", length=32))
    chains = {"train": ["AELK", "VIYF"], "test": ["AELKMQ", "VIYFWT"]}
    placed = {name: [json.dumps(fold([chain])[0].tolist()) for chain in own] for name, own in chains.items()}
    found = baselines.baselines(ProteinFolding(recipe, FoldedChains("peptides", "t", "s", chains, targets=placed)))
    assert found["one helix"]["test"].keys() == {"lddt_ca", "rmsd"}
    for segment in found.values():  # one chain of two is right
        assert 0.5 < segment["test"]["lddt_ca"] < 1 and segment["test"]["rmsd"] > 0.5
    alone = FoldedChains("peptides", "t", "s", {"test": chains["test"][:1]}, targets={"test": placed["test"][:1]})
    helix = baselines.baselines(ProteinFolding(recipe, alone))["one helix"]["test"]
    assert helix == {"lddt_ca": 1, "rmsd": pytest.approx(0, abs=1e-4)}
