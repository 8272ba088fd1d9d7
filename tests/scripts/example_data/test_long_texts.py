"""A table in front of a text says the values of the keys behind it."""

from qkv.scripts.example_data.long_texts import associative_recall
from recipes import recipe_of

LONG = recipe_of(text=dict(made=60, length=402, symbols=20))


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
