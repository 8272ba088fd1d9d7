"""Public reports about `generate`, each on models of ours: the true tokens are those of a row alone."""

from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from torch.testing import assert_close
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from errors import raises_sentence
from qkv.scripts.data.corpus import Corpus
from qkv.scripts.data.text_columns import TaggedWords
from qkv.scripts.tasks.infilling import causal_lm
from qkv.scripts.tasks.seq2seq import Seq2Seq
from qkv.scripts.tasks.text_classification import TextClassification
from qkv.scripts.tasks.token_classification import TokenClassification
from recipes import recipe_of
from speaking import DECODERS, RECURRENT, build

pytestmark = pytest.mark.upstream

ROWS = [[5, 6, 7], [9, 10, 11, 12, 13, 14, 15, 16]]
STATES = ("linear", "deltanet")  # kernels whose cache cannot be cropped


def written(model: PreTrainedModel, rows: list[list[int]], **options: Any) -> list[list[int]]:
    """The tokens of prompts or sources in one batch; prompts are padded on the left."""
    longest, pad = max(map(len, rows)), options.setdefault("pad_token_id", 1)
    is_prompt = not model.config.is_encoder_decoder
    filled = [[pad] * (longest - len(row)) for row in rows]
    ids = torch.tensor([fill + row if is_prompt else row + fill for fill, row in zip(filled, rows, strict=True)])
    real = [[0] * len(fill) + [1] * len(row) for fill, row in zip(filled, rows, strict=True)]
    mask = torch.tensor([each if is_prompt else each[::-1] for each in real])
    tokens = model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False, **options)
    return tokens[:, longest if is_prompt else 1 :].tolist()


def assert_as_alone(model: PreTrainedModel, **options: Any) -> None:
    together = written(model, ROWS, **options)
    for row, tokens in zip(ROWS, together, strict=True):
        (alone,) = written(model, [row], **options)
        assert tokens[: len(alone)] == alone and {*tokens[len(alone) :]} <= {options.get("pad_token_id", 1)}


@pytest.mark.costly(2)
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bart"])
@pytest.mark.parametrize("length_penalty", [3.0, -2.0])
def test_length_penalties_do_not_count_padding(kind: str, length_penalty: float) -> None:
    model = build(kind)
    ends = written(model, ROWS[:1])[0][3:6:2]
    assert_as_alone(model, num_beams=3, length_penalty=length_penalty, eos_token_id=ends)


@pytest.mark.costly(5)
@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize(
    ("kind", "penalty"),
    [
        *((kind, {"repetition_penalty": 5.0, "pad_token_id": pad}) for kind in ("gpt2", "llama") for pad in (23, 47)),
        *((kind, {"encoder_repetition_penalty": 4.0}) for kind in ("t5", "bart", "marian", *RECURRENT[:1])),
    ],
)
def test_padding_is_no_token_that_was_repeated(kind: str, penalty: dict[str, Any], beams: int) -> None:
    assert_as_alone(build(kind), num_beams=beams, **penalty)


@pytest.mark.costly(2)
@pytest.mark.parametrize("kind", [each for each in DECODERS if each not in STATES])
def test_assistants_change_no_token(kind: str) -> None:
    model, assistant = build(kind), build(kind)
    with torch.no_grad():
        for parameter in assistant.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    assert written(model, ROWS[1:], assistant_model=assistant) == written(model, ROWS[1:])
    repeating = [[5, 6, 7, 5, 6, 7, 5, 6]]
    assert written(model, repeating, prompt_lookup_num_tokens=3) == written(model, repeating)


@pytest.mark.parametrize("kind", STATES)
def test_states_that_cannot_go_back_have_no_assistant(kind: str) -> None:
    with pytest.raises(ValueError, match="cache|assistant"):
        written(build(kind), ROWS[1:], assistant_model=build(kind))


@pytest.mark.costly(2)
@pytest.mark.parametrize("kind", ["gpt2", "mistral", "bloom", "deltanet"])
def test_prompts_that_are_embeddings_are_counted_as_tokens(kind: str) -> None:
    model = build(kind)
    (expected,), (prompt,) = written(model, ROWS[1:]), ROWS[1:]
    inputs = {"inputs_embeds": model.get_input_embeddings()(torch.tensor([prompt]))}
    for bound in ({"max_length": 16}, {"max_new_tokens": 8}):
        assert model.generate(**inputs, **bound, do_sample=False, pad_token_id=1).tolist() == [expected]


@pytest.mark.parametrize("kind", ["gpt2", "dalle"])
def test_a_text_longer_than_its_positions_is_named(kind: str) -> None:
    with raises_sentence("49", "max_position_embeddings=48"):
        build(kind).generate(torch.tensor(ROWS[1:]), max_new_tokens=60, do_sample=False, pad_token_id=1)


@pytest.mark.costly(2)
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bart", "rnnsearch"])
def test_scores_of_beams_are_means_of_their_tokens(kind: str) -> None:
    model = build(kind)
    ends = written(model, ROWS[:1])[0][2:5:2]
    options = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 8, "do_sample": False, "pad_token_id": 1}
    made = model.generate(torch.tensor([ROWS[1][:4], ROWS[1][4:]]), **options, eos_token_id=ends, output_scores=True,
                          return_dict_in_generate=True)  # fmt: skip
    scores = model.compute_transition_scores(made.sequences, made.scores, made.beam_indices)
    assert_close(scores.sum(1) / (scores < 0).sum(1), made.sequences_scores)


# The end token of a tokenizer without padding ---------------------------------------------------------------------------

END = 0
NAMES, TEXTS = ("t", "t", "s"), dict.fromkeys(("train", "test"), ["a b c d", "e f", "a <|end|> b"])
TARGETS = {"targets": dict.fromkeys(TEXTS, ["c", "d e", "f"])}


def padded_by_its_end(folder: Any, *, ends: bool) -> Any:
    """A recipe with a tokenizer that has no padding and, if it ends texts itself, a template."""
    words = {word: number for number, word in enumerate(["<|end|>", "[UNK]", *"abcdefg"])}
    letters = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    letters.pre_tokenizer = pre_tokenizers.Whitespace()
    if ends:
        letters.post_processor = TemplateProcessing(single="$A <|end|>", special_tokens=[("<|end|>", END)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=letters, eos_token="<|end|>", bos_token="<|end|>", unk_token="[UNK]"
    )
    fast.save_pretrained(folder)
    return recipe_of(text={"tokenizer": str(folder), "length": 16})


def batch_of(task: Any) -> dict[str, Tensor]:
    return task.collate(task.splits["test"].__getitems__([0, 1, 2]), None)


def read_tokens(batch: dict[str, Tensor]) -> list[list[int]]:
    """The tokens that are attended to."""
    assert int(batch["input_ids"].min()) >= 0
    return [ids[mask.bool()].tolist() for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)]


def learned_tokens(batch: dict[str, Tensor]) -> list[list[int]]:
    return [row[row >= 0].tolist() for row in batch["labels"]]


def test_ends_that_pad_are_read(tmp_path: Any) -> None:
    recipe = padded_by_its_end(tmp_path, ends=True)
    ids = [[2, 3, 4, 5, END], [6, 7, END], [2, END, 3, END]]
    labels = {"labels": dict.fromkeys(TEXTS, [0, 1, 0]), "names": ["x", "y"]}
    words = dict.fromkeys(TEXTS, [["a", "b", "c", "d"], ["e", "f"], ["a", "b"]])
    tags = {name: [[0] * len(row) for row in rows] for name, rows in words.items()}
    tagged = TaggedWords(*NAMES, texts=words, labels=tags, names=["O", "B-x"])
    assert read_tokens(batch_of(TextClassification(recipe, Corpus(*NAMES, texts=TEXTS, **labels)))) == ids
    assert read_tokens(batch_of(TokenClassification(recipe, tagged))) == [*ids[:2], [2, 3, END]]
    translated = batch_of(Seq2Seq(recipe, Corpus(*NAMES, texts=TEXTS, **TARGETS)))
    assert read_tokens(translated) == ids and learned_tokens(translated) == [[4, END], [5, 6, END], [7, END]]


def test_ends_that_pad_are_learned(tmp_path: Any) -> None:
    recipe = padded_by_its_end(tmp_path, ends=False)
    answers = batch_of(causal_lm(recipe, Corpus(*NAMES, texts=TEXTS, **TARGETS)))
    assert learned_tokens(answers) == [[4, END], [5, 6, END], [7, END]]
    packed = causal_lm(recipe, Corpus(*NAMES, texts=TEXTS)).splits["test"].columns["labels"]
    assert packed[packed >= 0].tolist() == [3, 4, 5, END, 7, END, END, 3, END]


def test_a_saved_model_writes_as_many_tokens_as_it_learned(tmp_path: Any) -> None:
    recipe = recipe_of(text={"tokenizer": "bytes", "vocab_size": 300, "length": 40})
    task = Seq2Seq(recipe, Corpus(*NAMES, texts=TEXTS, targets=dict.fromkeys(TEXTS, ["x" * 39] * 3)))
    model = build("bart", forced_eos_token_id=None)
    model.generation_config.update(**task.generation, _from_model_config=False)  # as a training does in the end
    model.save_pretrained(tmp_path)
    source = torch.tensor(ROWS[:1])
    assert type(model).from_pretrained(tmp_path).generate(source, pad_token_id=1).shape == (1, 1 + 44)


def test_an_answer_does_not_depend_on_its_batch() -> None:
    recipe = recipe_of(text={"tokenizer": "bytes", "vocab_size": 300, "length": 40})
    task = Seq2Seq(recipe, Corpus(*NAMES, texts=TEXTS, targets=dict.fromkeys(TEXTS, ["x", "x" * 9, "x" * 30])))
    model, records = build("bart", vocab_size=300, forced_eos_token_id=None), [0, 1, 2]  # it never ends
    split = task.splits["test"]

    def answers(places: list[int]) -> list[Any]:
        return task.answer(model, None, task.collate(split.__getitems__(places), None))

    assert answers(records) == [answer for place in records for answer in answers([place])]
