"""`qkv explain`: every word that can be typed is explained, with a line that works; near misses are suggested."""

import shlex

import pytest

import checkout
import qkv
from qkv import modeling
from qkv.configuration import presets
from qkv.configuration.configuration_base import model_configs
from qkv.configuration.fields import literal_words
from qkv.modeling.conversion.convert import ARCHITECTURES
from qkv.scripts.arguments import COMMANDS, parser_of
from qkv.scripts.cli import main
from qkv.scripts.explain import all_entries, explanations, spelled
from qkv.scripts.explanation import examples
from qkv.scripts.explanation.entries import prose, source
from qkv.scripts.planning.choices import Strategy
from qkv.scripts.recipes.fields.aliases import ALIASES, ANSWERS
from qkv.scripts.recipes.fields.config_fields import config_fields, fields_of_config
from qkv.scripts.recipes.fields.recipe_fields import recipe_fields
from qkv.scripts.recipes.loading import load, names
from qkv.scripts.tasks.metrics import METRICS
from qkv.scripts.tasks.registry import HEADS, NAMES
from qkv.scripts.training.run import config_factory

ENTRIES = all_entries()


def config_words() -> set[str]:
    """All words of all fields of configs."""
    known = [
        config.__dataclass_fields__[name] for config in model_configs() for name in fields_of_config(config.__name__)
    ]
    return {word for field in known for word in literal_words(field.type) if isinstance(word, str)}


def typed_words() -> set[str]:
    """All that a person types in commands: names, fields and their words."""
    fields = recipe_fields()
    words = {*COMMANDS, *names(), *presets.names(), *NAMES, *METRICS, *ALIASES, *ANSWERS, *fields}
    words |= {head.ending for head in HEADS} | {head.task.kind for head in HEADS if getattr(head.task, "kind", "")}
    words |= {word for field in fields.values() for word in field.words} | set(Strategy.__args__)
    words |= {name for name in modeling.__all__ if name.startswith("Qkv")} | config_words()
    return words | {architecture.model_type for architecture in ARCHITECTURES}


def test_everything_that_is_typed_is_explained() -> None:
    unknown = []
    known = {name for entry in ENTRIES for name in entry.names}
    for word in sorted(typed_words() - known):
        try:
            explanations(word)
        except ValueError:
            unknown.append(word)
    assert unknown == []
    assert [entry.names for entry in ENTRIES if not entry.text] == []


def try_line(line: str) -> None:
    """Parse a line as the shell and its command do, and make the config of the recipe that it trains."""
    program, *words = shlex.split(line)
    if program == "accelerate":
        assert (checkout.ROOT / words[2]).is_file() and (checkout.ROOT / words[3]).is_file() and words[4] in names()
    elif program == "torchrun":
        assert (checkout.ROOT / words[2]).is_file() and load(words[3], words[4:])
    elif program == "python":
        assert hasattr(qkv, words[1].split()[3].rstrip(";"))
    else:
        command, *words = words
        arguments = parser_of(command).parse_intermixed_args(words)
        assert program == "qkv" and (command != "plan" or arguments.subject in {*names(), *presets.names()})
        if command == "train":
            recipe = load("digits" if arguments.recipe == examples.OWN_DATA else arguments.recipe, arguments.overrides)
            config_factory(recipe, getattr(modeling, recipe.model.architecture))(**recipe.model.config)


def test_every_line_to_type_works() -> None:
    wrong = {}
    for line in {entry.example for entry in ENTRIES} - {""}:
        try:
            try_line(line)
        except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            wrong[line] = error
    assert wrong == {}


def test_values_of_examples_are_of_fields_there_are() -> None:
    assert {*examples.RECIPE_VALUES, *examples.OPEN, *examples.OF_OWN_DATA} <= recipe_fields().keys()
    assert {*examples.OF_SEVERAL_PROCESSES} <= recipe_fields().keys() and examples.VALUES.keys() <= config_fields()
    shown = " ".join(entry.example for entry in ENTRIES)
    assert [word for word in examples.NEEDED if word not in shown] == []


@pytest.mark.parametrize(
    ("word", "sentences"),
    {
        "rope": ["Rotate queries and keys", "source: Su et al. 2021", "model.position", "default is learned", "copy"],
        "lr": ["learning_rate: field of a recipe", "default: 0.001", "other names: lr"],
        "masked-lm": ["Predict masked tokens", "docs-mlm"],
        "GPT2": ["Radford et al. 2019", "qkv plan gpt2", "converted to QkvDecoderConfig and back"],
        "learning rate": ["learning_rate: field of a recipe"],
        "dropout": ["embedding_dropout:", "attention_dropout:", "residual_dropout:"],
        "position=rope": ["position: field of a model's config", "rope: word of model.position"],
        "device": ["CUDA_VISIBLE_DEVICES"],
        "--per_device_train_batch_size": ["batch_size: field of a recipe"],
        "--learning-rate=1e-3": ["learning_rate: field of a recipe"],
        "--trials": ["--trials: option of qkv sweep", "where a field has a range"],
        "--seed": ["seed: field of a recipe", "--seed: option of qkv compare-history", "seed: option of qkv evaluate"],
        "--debug": ["Show the traceback of an error", "train, quickstart"],
        "resamples": ["resamples: option of qkv evaluate", "1000"],
        "wer": ["words", "qkv train spoken-digits"],
    }.items(),
)
def test_an_explanation_holds(word: str, sentences: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert [sentence for sentence in sentences if sentence not in printed] == []


def test_an_option_and_its_value_are_explained_as_they_are_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--lr", "1e-3"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("learning_rate: field") and main(["explain", "lr"]) == 0 and capsys.readouterr().out == told
    assert main(["explain", "seed"]) == 0 and "option" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["explain", "--lr", "--help"])


def test_a_field_that_families_have_with_other_words_is_explained_for_each() -> None:
    stacks, detectors, queries = (entry for entry in explanations("model.position"))
    assert (stacks.facts["default"], detectors.facts["default"]) == ("learned", "sinusoidal_2d")
    assert queries.facts["takes"] == "object_queries"


def test_a_near_miss_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "roep"]) == 1 and "did you mean 'rope'?" in capsys.readouterr().err
    assert main(["explain", "qqqqqq"]) == 1 and "qkv --help" in capsys.readouterr().err
    assert main(["explain", "--resample"]) == 1 and "did you mean 'resamples'?" in capsys.readouterr().err
    assert main(["explain", "f1"]) == 1 and "did you mean 'f1_macro'?" in capsys.readouterr().err


def test_it_is_printed_within_the_terminal() -> None:
    lines = [line for entry in ENTRIES for line in spelled(entry, 80).splitlines()]
    assert [line for line in lines if len(line) > 80 and " " in line.strip()] == []


def test_a_docstring_is_its_prose_and_its_source() -> None:
    text = "Do it.\n\n    More.\n\n    Acts at: x\n    Source: A 2020, b\n        c\n    Shapes: (B)\n"
    assert (prose(text), source(text)) == ("Do it.\n\nMore.", "A 2020, b c")
