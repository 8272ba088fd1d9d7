"""The model to show is found by any of its names, from its config alone."""

from pathlib import Path

import pytest
import transformers
from transformers import AutoConfig

import qkv
from qkv import modeling
from qkv.scripts.architecture import source
from qkv.scripts.architecture.costs import count_costs
from qkv.scripts.architecture.source import HeadlessModel, config_folder, find_model
from tiny import decoder

OFFICIAL = {
    "GPT2LMHeadModel": {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 31, "n_positions": 8},
    "BertForSequenceClassification": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
    "T5ForConditionalGeneration": {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8, "vocab_size": 31},
    "ViTForImageClassification": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
}


def save_official(name: str, folder: Path) -> transformers.PreTrainedModel:
    """Write the config of an official model, without weights."""
    model_class = getattr(transformers, name)
    config = model_class.config_class(**OFFICIAL[name], architectures=[name])
    config.save_pretrained(folder)
    return model_class(config)


@pytest.mark.parametrize("name", OFFICIAL)
def test_an_official_config_is_the_model_that_conversion_makes(name: str, tmp_path: Path) -> None:
    official = save_official(name, tmp_path)
    converted = qkv.from_transformers(official)
    shown = find_model(str(tmp_path), [], None)
    assert shown.model_class is type(converted)
    assert count_costs(shown).parameters == converted.num_parameters() == official.num_parameters()


def test_a_run_a_preset_and_a_recipe_are_found(tmp_path: Path) -> None:
    config = decoder(architectures=["QkvDecoderForCausalLM"])
    config.save_pretrained(tmp_path / "run" / "model")
    run = find_model(str(tmp_path / "run"), ["num_hidden_layers=1"], 4)
    assert run.config.num_hidden_layers == 1 and run.sizes == {"tokens": 4}
    assert find_model("gpt2", ["position=rope"], None).config.position == "rope"
    assert find_model("digits", [], None).recipe is not None


@pytest.mark.parametrize(
    "name", [name for name in modeling.__all__ if name.endswith("Model") and "For" not in name and "Dual" not in name]
)
def test_a_model_without_a_head_is_shown_or_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    config_class = getattr(modeling, name).config_class
    # The forty-eight layers of the pairs take a while, and are one as the other.
    depth = {"num_hidden_layers": 1} if "num_hidden_layers" in config_class().to_dict() else {}
    config_class(architectures=[name], **depth).save_pretrained(tmp_path)
    try:
        shown = find_model(str(tmp_path), [], None)
    except ValueError as error:
        assert str(error) == f"{tmp_path} holds a {name}, which is a part of other models; name one of these"
        return
    assert isinstance(shown, HeadlessModel) and count_costs(shown).flops > 0


def test_of_the_hub_the_config_alone_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_official("GPT2LMHeadModel", tmp_path)
    asked = []

    def download(name: str, file: str, revision: str | None) -> str:
        asked.append((name, file, revision))
        return str(tmp_path / file)

    monkeypatch.setattr(source, "hf_hub_download", download)
    assert config_folder("user/name@v1", None) == tmp_path and asked == [("user/name", "config.json", "v1")]


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("gpt3", [], "'gpt3' is no preset, recipe or folder; did you mean 'gpt2'?"),
        ("empty", [], "empty holds no config.json; give a finished run such as runs/first, or a model folder"),
        ("official", ["position=rope"], "position=rope is for a qkv config, and official has one of GPT2LMHeadModel"),
        ("unknown", [], "model_type 'sam' cannot be converted; qkv converts"),
        ("gpt2", ["positon=rope"], "positon"),
    ],
)
def test_a_mistake_is_a_sentence(
    name: str, words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    save_official("GPT2LMHeadModel", Path("official"))
    AutoConfig.for_model("sam", architectures=["SamModel"]).save_pretrained("unknown")
    with pytest.raises(ValueError, match=".") as error:
        find_model(name, words, None)
    assert message in str(error.value)
