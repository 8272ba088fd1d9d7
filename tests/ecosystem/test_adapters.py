"""PEFT on every head: an adapter starts as nothing, learns, comes back from its file and melts into the weights."""

import copy
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import (
    AdaLoraConfig,
    AdaptionPromptConfig,
    IA3Config,
    LNTuningConfig,
    LoraConfig,
    PeftConfig,
    PeftModel,
    PrefixTuningConfig,
    PromptEncoderConfig,
    PromptTuningConfig,
    get_peft_model,
)
from torch import Tensor
from torch.testing import assert_close
from transformers import PreTrainedModel

import gradient_worker as worker
import qkv
import tiny
from qkv.modeling.position.hooks import apply_rotation
from sampling import sampled

pytestmark = pytest.mark.upstream

BY_NAME = {case.name: case for case in tiny.LOSSES}
EXACT = {"rtol": 0, "atol": 1e-10}
# Of feed-forward networks, of the attention of those that have none, and of what joins two that have neither.
NAMED = ["gate_proj", "up_proj", "down_proj", "alignment.q_proj", "decoder.bridge"]


def scores(model: Any, inputs: dict[str, Tensor]) -> list[Tensor]:
    """Every tensor that comes out, the loss among them."""
    with torch.no_grad():
        return [value for value in model.eval()(**inputs).values() if isinstance(value, Tensor)]


def assert_equal(actual: list[Tensor], expected: list[Tensor]) -> None:
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert_close(one, other, **EXACT)


def prepared(case: tiny.Case, **fields: Any) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    return case.build(**fields).double(), worker.double(case.inputs())


def adapt(model: PreTrainedModel, config: PeftConfig) -> Any:
    """A copy with the adapter, which is double as well: PEFT makes it of single precision."""
    return get_peft_model(copy.deepcopy(model), config).double()


def learn(adapted: Any, inputs: dict[str, Tensor]) -> None:
    """Three steps, after which the loss is lower and what was frozen is as it was."""
    adapted.eval()
    frozen = {name: value.clone() for name, value in adapted.named_parameters() if not value.requires_grad}
    optimizer = torch.optim.SGD([value for value in adapted.parameters() if value.requires_grad], lr=0.05)
    before = adapted(**inputs).loss
    for _ in range(3):
        adapted(**inputs).loss.backward()
        # As training does; the loss of set matching is steep.
        torch.nn.utils.clip_grad_norm_(adapted.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    assert adapted(**inputs).loss < before
    parameters = dict(adapted.named_parameters())
    assert all(torch.equal(parameters[name], value) for name, value in frozen.items())


def comes_back(model: PreTrainedModel, adapted: Any, inputs: dict[str, Tensor], folder: Path) -> PeftModel:
    """The adapter read from its file into the original, with the same numbers."""
    adapted.save_pretrained(folder)
    loaded = PeftModel.from_pretrained(copy.deepcopy(model), folder).double()
    assert_equal(scores(loaded, inputs), scores(adapted, inputs))
    return loaded


@pytest.mark.parametrize(
    ("case", "targets"),
    sampled(itertools.product(tiny.LOSSES, ("all-linear", NAMED)), 23, 4),
    ids=lambda value: getattr(value, "name", "all" if value == "all-linear" else "named"),
)
def test_lora_on_every_head(case: tiny.Case, targets: Any, tmp_path: Path) -> None:
    model, inputs = prepared(case)
    adapted = adapt(model, LoraConfig(r=2, target_modules=targets))
    assert_equal(scores(adapted, inputs), scores(model, inputs))
    learn(adapted, inputs)
    idle = [name for name, value in adapted.named_parameters() if "lora_B" in name and not value.any()]
    # The queries of a detector start from zeros, of which its first layer makes values; the language model that a
    # folding model reads is frozen, as in stock ESMFold, and no labels are for its head.
    detects = case.model_class is qkv.QkvDetectionForObjectDetection
    without = ("language_features.encoder", "language_features.residue_head", *["layers.0.self_attn.v"] * detects)
    assert all(any(part in name for part in without) for name in idle)
    expected = scores(adapted, inputs)
    merged = comes_back(model, adapted, inputs, tmp_path).merge_and_unload()
    assert type(merged) is case.model_class
    assert_equal(scores(merged, inputs), expected)
    assert_equal(scores(adapted.unload(), inputs), scores(model, inputs))


KINDS = [
    ("EncoderForSequenceClassification-bert", "SEQ_CLS", ["classifier"]),
    ("DecoderForCausalLM-llama", "CAUSAL_LM", None),
    ("EncoderDecoderForConditionalGeneration-t5", "SEQ_2_SEQ_LM", None),
    ("AudioEncoderForCTC-speech", None, ["lm_head"]),
]


@pytest.mark.parametrize(("name", "task", "saved"), KINDS)
def test_kinds_of_tasks_and_heads_that_are_saved_whole(name: str, task: str, saved: Any, tmp_path: Path) -> None:
    model, inputs = prepared(BY_NAME[name])
    targets = ["q_proj", "v_proj"]
    adapted = adapt(model, LoraConfig(task_type=task, r=2, target_modules=targets, modules_to_save=saved))
    learn(adapted, inputs)
    comes_back(model, adapted, inputs, tmp_path)
    assert "model.safetensors" not in {path.name for path in tmp_path.iterdir()}
    model.load_adapter(tmp_path)  # transformers' own way in
    assert_equal(scores(model.double(), inputs), scores(adapted, inputs))


def test_all_linear_skips_a_tied_head() -> None:
    """An adapter on the head of tied weights would change the embeddings too, once it is merged."""
    for name in ("DecoderForCausalLM-gpt2", "EncoderForMaskedLM-bert", "EncoderDecoderForConditionalGeneration-bart"):
        adapted = adapt(BY_NAME[name].build(), LoraConfig(r=2, target_modules="all-linear"))
        found = [key for key, value in adapted.named_parameters() if value.requires_grad]
        assert len(found) > 10 and not [key for key in found if "lm_head.lora" in key or "decoder.lora" in key]


VIRTUAL = [
    ("DecoderForCausalLM-bloom", PromptTuningConfig, "CAUSAL_LM"),
    ("DecoderForCausalLM-llama", PrefixTuningConfig, "CAUSAL_LM"),
    ("DecoderForSequenceClassification-gpt2", PrefixTuningConfig, "SEQ_CLS"),
    ("EncoderDecoderForConditionalGeneration-transformer", PrefixTuningConfig, "SEQ_2_SEQ_LM"),
    ("EncoderDecoderForConditionalGeneration-marian", PromptTuningConfig, "SEQ_2_SEQ_LM"),
    ("EncoderForTokenClassification-local", PrefixTuningConfig, "TOKEN_CLS"),
]


@pytest.mark.parametrize(("name", "kind", "task"), sampled(VIRTUAL, 3))
def test_virtual_tokens(name: str, kind: Any, task: str, tmp_path: Path) -> None:
    model, inputs = prepared(BY_NAME[name])
    look_up, ids = model.get_input_embeddings(), torch.tensor([5, 6, 7])
    assert torch.equal(look_up(ids), look_up(ids[None])[0])  # as of prompts that begin as a text
    adapted = adapt(model, kind(task_type=task, num_virtual_tokens=3))
    learn(adapted, inputs)
    for value in adapted.prompt_encoder.parameters():  # PEFT reads them in single precision
        value.data = value.data.float().double()
    comes_back(model, adapted, inputs, tmp_path)


@torch.no_grad()
@pytest.mark.parametrize("kind", [PrefixTuningConfig, PromptTuningConfig, PromptEncoderConfig])
@pytest.mark.parametrize("name", ["t5", "bart"])
def test_generation_reads_soft_prompts(name: str, kind: Any) -> None:
    """That losses are those of stock models: tests/clients/test_peft.py."""
    config = {"task_type": "SEQ_2_SEQ_LM", "num_virtual_tokens": 4}
    adapted = get_peft_model(BY_NAME[f"EncoderDecoderForConditionalGeneration-{name}"].build(), kind(**config)).eval()
    source = {key: tiny.translations()[key] for key in ("input_ids", "attention_mask")}
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "forced_eos_token_id": None}
    tokens = torch.full((len(source["input_ids"]), 1), adapted.config.decoder_start_token_id)
    for _ in range(6):
        logits = adapted(**source, decoder_input_ids=tokens).logits[:, -1]
        tokens = torch.cat((tokens, logits.argmax(-1, keepdim=True)), dim=1)
    assert torch.equal(adapted.generate(**source, **options), tokens)


RECOMPUTED = [
    "DecoderForCausalLM-gpt2",
    "ImageEncoderForImageClassification-vit",
    "EncoderForMaskedLM-bert",
    "EncoderDecoderForConditionalGeneration-t5",
]


@pytest.mark.parametrize("name", sampled(RECOMPUTED, 2))
def test_checkpointed_layers_teach_the_adapter_the_same(name: str) -> None:
    model, inputs = prepared(BY_NAME[name], **worker.NO_DROPOUT, drop_path_rate=0.0)
    plain = adapt(model, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    recomputed = copy.deepcopy(plain)
    recomputed.base_model.model.activation_checkpointing_enable({"use_reentrant": False})
    for adapted in (plain, recomputed):
        adapted.train()(**inputs).loss.backward()
    expected = {key: value.grad for key, value in plain.named_parameters() if value.requires_grad}
    assert max(value.abs().max() for value in expected.values() if value is not None) > 1e-3
    for key, value in recomputed.named_parameters():
        if value.requires_grad:
            assert_close(value.grad, expected[key], **EXACT, msg=lambda text, key=key: f"{key}: {text}")


# PEFT cannot put an adapter on a norm that is none, as the first of stock ModernBERT is too.
WITH_ATTENTION = [case for case in tiny.LOSSES if not ("Recurrent" in case.name or case.name.endswith("modernbert"))]


@pytest.mark.parametrize(
    "config",
    [LoraConfig(r=2), IA3Config(), AdaLoraConfig(total_step=9), LNTuningConfig()],
    ids=lambda config: config.peft_type.value,
)
@pytest.mark.parametrize("case", sampled(WITH_ATTENTION, 9), ids=lambda case: case.name)
def test_adapters_find_their_modules_themselves(case: tiny.Case, config: PeftConfig) -> None:
    model, inputs = prepared(case)
    learn(adapt(model, copy.deepcopy(config)), inputs)


def test_adaption_prompts_read_the_queries_of_the_layer() -> None:
    """Of an open gate, what is added is attention of the layer's own queries over the prompt."""
    model, inputs = prepared(BY_NAME["DecoderForCausalLM-llama"])
    adapted = adapt(model, AdaptionPromptConfig(task_type="CAUSAL_LM", adapter_len=3, adapter_layers=2))
    assert_equal(scores(adapted, inputs), scores(model, inputs))
    for name, value in adapted.named_parameters():
        value.data += name.endswith("adaption_gate") * 0.5
    layer, found = adapted.base_model.model.model.layers[0].self_attn, {}
    layer.model.register_forward_pre_hook(lambda module, given, kwargs: found.update(kwargs), with_kwargs=True)
    layer.register_forward_hook(lambda module, given, output: found.update(output=output[0]))
    scores(adapted, inputs)
    attention, rotation = layer.model, found["context"].position.rotation
    query = apply_rotation(attention.query(found["hidden"]), attention.key(found["hidden"]), rotation)[0]
    key, value = attention.key(layer.adaption_prompt), attention.value(layer.adaption_prompt)
    weights = 0.5 * (query @ key.repeat_interleave(2, 1).mT * attention.scaling).softmax(-1)
    added = attention.o_proj((weights @ value.repeat_interleave(2, 1)).transpose(1, 2).flatten(2))
    adapted_output = found.pop("output")
    found["context"] = found["context"]._replace(cache=None)  # which holds the tokens that were just read
    assert_close(adapted_output, attention(**found)[0] + added, rtol=1e-6, atol=1e-6)
    assert added.abs().max() > 1e-3
