"""Small models of design choices and heads: what is taken out is out, tests are new, and nothing is measured twice."""

import pytest
import torch
from torch.nn import functional as F

from qkv.scripts.lab.history import choices, heads, measure

ROWS = [b"a text", b"another text, which is longer", b"third"]


@pytest.mark.parametrize("name", ["four heads", "batch norm", "no feed-forward"])
def test_a_choice_changes_what_it_names_and_reads_no_padding(name: str) -> None:
    model = choices.build(choices.TABLE["choices"][name]).train()
    kinds = {type(module).__name__ for module in model.modules()}
    assert ("BatchNorm" in kinds) == (name == "batch norm") and ("MLP" in kinds) == (name != "no feed-forward")
    padded = {key: F.pad(own, (0, 9), value=-100 * (key == "labels")) for key, own in choices.collate(ROWS).items()}
    torch.testing.assert_close(model(**padded).loss, model(**choices.collate(ROWS)).loss)


def test_even_weights_have_all_entropy_and_even_bytes_all_nats() -> None:
    model = choices.build({"model": {"initializer_range": 1e-9}}).eval()
    found = choices.attention(model, choices.collate(ROWS))
    assert (found["entropy"], found["slope"]) == pytest.approx((1, 1))
    assert choices.evaluate(model, ROWS, 1)["loss"] == pytest.approx(torch.tensor(256.0).log().item())


def test_sentences_for_tests_join_other_nouns_than_training_and_tags_are_those_of_the_marked_word() -> None:
    random, joined = torch.Generator().manual_seed(0), []
    classes = {heads.IDS[word]: number for word, number in heads.CLASS_OF.items()}
    for held_out in (False, True):
        rows, asked, told = heads.batch(heads.TABLE["frames"]["agreement"], 99, random, held_out=held_out)
        joined.append({tuple(word for word in row if word in classes) for row in rows["input_ids"].tolist()})
        nouns, tags = rows["input_ids"].gather(1, told[:, None]), rows["labels"].gather(1, asked[:, None])
        assert [classes[noun] for noun in nouns.flatten().tolist()] == tags.flatten().tolist()
    assert not joined[0] & joined[1]


@pytest.mark.parametrize("part", ["choices", "heads"])
def test_models_that_a_record_has_are_not_measured_again(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(choices.TABLE, "choices", {"one": {}, "two": {"norm": "batch", "texts": 1}})
    monkeypatch.setattr(choices, "texts", lambda longest: {"train": ROWS, "test": ROWS[:2]})
    *_, own = measure.measure_small_models({}, part, "quick", "first")
    (name, runs), (other, _) = own["found"].items()
    assert runs[0]["parameters"] > 0 and list(measure.measure_small_models(own, part, "quick", "second")) == []
    del own["found"][other]
    (again,) = measure.measure_small_models(own, part, "quick", "third")
    assert again["found"].keys() == {name, other} and again["found"][name] is runs
