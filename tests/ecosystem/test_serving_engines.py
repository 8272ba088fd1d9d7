"""vLLM and SGLang serve our texts through their transformers backends, or say why not: their rules, their loops."""

import copy
from typing import Any, get_args

import engines
import pytest
import torch
from engines import ENGINES, SGLANG_STYLES, VLLM_STYLES, registered, serve, styles
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedModel

import qkv
import tiny
from qkv.configuration.axes import BIAS_POSITIONS, MASKLESS_PATTERNS, BiasPositionName

LENGTHS = [5, 9, 1, 7]
DECODERS = {
    "gpt2": tiny.decoder("gpt2"),
    "llama": tiny.decoder("llama"),
    "mistral": tiny.decoder("mistral"),
    "neox": tiny.decoder("neox"),
    "sinusoidal, scaled": tiny.decoder("gpt2", position="sinusoidal", scale_embedding=True, embedding_norm=True),
    "none": tiny.decoder("gpt2", position="none", attention_multiplier=0.2),
}
ENCODERS = {"bert": tiny.encoder("bert"), "local": tiny.encoder("local"), "modernbert": tiny.encoder("modernbert")}
SERVED = {**DECODERS, **ENCODERS}
# The one place that says which models no engine serves, and what it is that rules them out.
NOT_SERVED = {
    "QkvEncoderDecoderConfig": "a layer attends to two sequences",
    "QkvSpeechEncoderDecoderConfig": "a layer attends to two sequences",
    "QkvDetectionConfig": "a layer attends to two sequences",
    "QkvRecurrentConfig": "has no attention of transformers",
    "QkvPairConfig": "a layer attends to pairs",
    "QkvFoldingConfig": "a layer attends to pairs",
    "QkvImageEncoderConfig": "reads no text",
    "QkvAudioEncoderConfig": "reads no text",
    "QkvDualEncoderConfig": "holds two models",
}


def built(config: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    return tiny.jitter(AutoModel.from_config(copy.deepcopy(config))).eval()


def ids() -> Tensor:
    return tiny.text(batch=1, length=sum(LENGTHS))["input_ids"].clamp(min=4)


@torch.no_grad()
def expected(model: PreTrainedModel) -> Tensor:
    """What the model itself makes of each sequence."""
    return torch.cat([model(part).last_hidden_state[0] for part in ids().split(LENGTHS, dim=1)])


each_engine = pytest.mark.parametrize("engine", ENGINES)
each_model = pytest.mark.parametrize("config", SERVED.values(), ids=SERVED.keys())


@each_engine
@each_model
def test_an_engine_computes_what_the_model_does(config: Any, engine: str) -> None:
    model = built(config)
    with registered(engine):
        assert_close(serve(copy.deepcopy(model), engine, LENGTHS)(ids()), expected(model), rtol=1e-5, atol=1e-5)


@each_engine
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("config", DECODERS.values(), ids=DECODERS.keys())
def test_two_stages_of_a_pipeline_compute_what_one_does(config: Any, tied: bool, engine: str) -> None:
    model = built(config)
    with registered(engine):
        first, second = (serve(copy.deepcopy(model), engine, LENGTHS, stage, stages=2, tied=tied) for stage in range(2))
        assert_close(second(first(ids())[None]), expected(model), rtol=1e-5, atol=1e-5)


@each_engine
def test_dropped_attention_shows(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention that mixes nothing is seen by the equalities above."""
    model = built(DECODERS["llama"])
    monkeypatch.setattr(engines.EngineAttention, "forward", lambda self, query, key, value: query)
    with registered(engine):
        assert (serve(copy.deepcopy(model), engine, LENGTHS)(ids()) - expected(model)).abs().max() > 1e-2


@each_engine
@each_model
def test_no_value_is_read_on_the_way(config: Any, engine: str) -> None:
    """SGLang records the calls of a step once and repeats them: tensors without values run through as well."""
    model = built(config)
    with registered(engine):
        run = serve(model.to("meta"), engine, LENGTHS, device="meta")
        assert run(ids().to("meta")).shape == (sum(LENGTHS), config.hidden_size)


@each_model
def test_the_class_is_found_and_takes_a_backend(config: Any) -> None:
    """vLLM: registry.py, _try_resolve_transformers, model_arch_config_convertor.py; SGLang: the same."""
    assert {"AutoConfig", "AutoModel"} <= config.auto_map.keys() and len(config.layer_types) == config.num_hidden_layers
    model = built(config)
    assert isinstance(model, PreTrainedModel) and type(model).is_backend_compatible()
    # vLLM: transformers/utils.py; SGLang: TransformersBase. Weights lie below `model.`, as their mappers expect.
    assert model.base_model_prefix == "model" and model.config.get_text_config() is model.config
    assert model.get_decoder() is model  # vLLM: transformers/base.py, _pre_trained_model_classes
    assert isinstance(model.get_input_embeddings(), nn.Embedding)  # vLLM: transformers/base.py, _vocab_embeddings
    causal = isinstance(config, qkv.QkvDecoderConfig)
    assert all(module.is_causal == causal for module in model.modules() if hasattr(module, "is_causal"))


@each_model
def test_plan_of_tensor_parallelism(config: Any) -> None:
    """Both: every linear layer of a layer is split in a style that the engines know."""
    model = built(config)
    assert set(model.tp_plan.values()) <= SGLANG_STYLES
    found = {name: style for name, style in styles(model).items() if name.startswith("layers.")}
    assert found and set(found.values()) == {"colwise", "rowwise"} <= VLLM_STYLES
    assert {name for name, style in found.items() if style == "rowwise"} == {
        name for name in found if name.endswith(("o_proj", "down_proj"))
    }


@pytest.mark.parametrize("config", DECODERS.values(), ids=DECODERS.keys())
def test_heads_are_where_engines_look(config: Any) -> None:
    """vLLM: transformers/causal.py and pooling.py; SGLang: CausalMixin."""
    model = AutoModelForCausalLM.from_config(copy.deepcopy(config))
    assert model.lm_head.weight.shape == (config.vocab_size, config.hidden_size) and model.model is model.base_model
    assert getattr(config, "logit_scale", 1.0) == 1.0
    scaled = tiny.decoder("llama", scale_logits=True)
    assert scaled.logit_scale == pytest.approx(scaled.hidden_size**-0.5)
    classifier = AutoModelForSequenceClassification.from_config(copy.deepcopy(config))
    assert isinstance(classifier.score, nn.Linear) and classifier.score.bias is None


WORDS = [
    *(tiny.decoder("llama", position=word) for word in get_args(BiasPositionName)),
    *(tiny.decoder(kind) for kind in ("bloom", "sparse", "dalle")),
]


@each_engine
@pytest.mark.parametrize("config", WORDS, ids=lambda config: f"{config.position}-{config.layer_patterns[0]}")
def test_words_without_an_engine_are_refused(config: Any, engine: str) -> None:
    assert config.position in BIAS_POSITIONS or set(config.layer_patterns) - set(MASKLESS_PATTERNS)
    with registered(engine), pytest.raises(ValueError, match=f"attn_implementation='{engine}' ignores"):
        serve(built(config), engine, LENGTHS)(ids())


def reason(config: Any) -> str:
    """Why no engine serves a family, by their rules."""
    model = built(config)
    if not type(model).is_backend_compatible():
        return "has no attention of transformers"
    if type(config).__name__ == "QkvDualEncoderConfig":
        assert len(config.sub_configs) == 2 and model.config.get_text_config() is not model.config
        return "holds two models"
    modules = [module for module in model.modules() if isinstance(getattr(module, "layer_idx", None), int)]
    if any(getattr(module, "cross_attn", None) is not None for module in model.modules()):
        assert len(modules) > len({module.layer_idx for module in modules})
        return "a layer attends to two sequences"
    if any(getattr(module, "row_bias", None) is not None for module in model.modules()):
        assert len(modules) > len({module.layer_idx for module in modules})
        return "a layer attends to pairs"
    return "reads no text" if model.main_input_name != "input_ids" else "served"


FAMILIES = [
    *(tiny.encoder_decoder(), tiny.speech_encoder_decoder(), tiny.detector(), tiny.recurrent()),
    *(tiny.image_encoder(), tiny.audio_encoder(), tiny.dual_encoder(), tiny.decoder(), tiny.encoder(), tiny.pair()),
    tiny.folding(),
]


def test_every_family_is_served_or_named() -> None:
    found = {type(config).__name__: reason(config) for config in FAMILIES}
    names = {name for name in qkv.__all__ if name.endswith("Config")}
    assert names - {"QkvTextEncoderConfig"} <= found.keys()
    assert {name: why for name, why in found.items() if why != "served"} == NOT_SERVED
