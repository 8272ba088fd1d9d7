"""Long texts: known lists have known results, pairs keep their values, all are the same every time."""

import re
from collections import defaultdict
from statistics import median

from qkv.scripts.example_data.long_texts import VALUES, associative_recall, listops, recall
from recipes import recipe_of

LONG = recipe_of(text=dict(made=60, length=402, symbols=20))


def value(text: str) -> int:
    """The result of a list, by replacing inner lists by theirs."""
    while text.startswith("["):
        name, digits = re.search(r"\[(\w+)((?: \d)+) \]", text).groups()
        numbers = [int(digit) for digit in digits.split()]
        results = {"MAX": max, "MIN": min, "MED": lambda n: int(median(n)), "SM": lambda n: sum(n) % 10}
        text = text.replace(f"[{name}{digits} ]", str(results[name](numbers)), 1)
    return int(text)


def test_the_class_of_a_list_is_its_result() -> None:
    corpus = listops(LONG)
    for split, texts in corpus.texts.items():
        assert [value(text) for text in texts] == corpus.labels[split]
    lengths = [len(text.split()) for text in corpus.texts["train"]]
    assert max(lengths) <= 400 and max(lengths) > 350 and min(lengths) < 200 and sum(lengths) > 200 * len(lengths)
    assert len(set(corpus.labels["train"])) > 5 and corpus.names == [str(digit) for digit in range(10)]
    assert len({*corpus.texts["train"], *corpus.texts["test"]}) == 60


def test_a_key_keeps_its_value_within_a_text_alone() -> None:
    corpus = recall(LONG)
    seen = defaultdict(set)
    for text in corpus.texts["train"]:
        words = text.split()
        assert len(words) == 400
        values: dict[str, str] = {}
        for key, held in zip(words[::2], words[1::2], strict=True):
            assert values.setdefault(key, held) == held
            seen[key].add(held)
    assert len(seen) == 20 and min(map(len, seen.values())) > VALUES // 2


def test_keys_have_the_values_of_the_table() -> None:
    data = associative_recall(LONG)
    for split, rows in data.words.items():
        for words, tags in zip(rows, data.tags[split], strict=True):
            table = dict(word.split("=") for word in words[:20])
            assert len(table) == 20 and [data.names[tag] for tag in tags[:20]] == [*table.values()]
            assert [data.names[tag] for tag in tags[20:]] == [table[word] for word in words[20:]]
    assert {len(words) for words in data.words["test"]} == {400}
    lengths = [len(words) for words in data.words["train"]]
    assert 40 <= min(lengths) < 80 < 200 < max(lengths) <= 400
