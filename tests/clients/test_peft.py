"""PEFT: every tuner of its registry, put on our model as on the stock one: output, a step, saved and loaded, merged."""

import copy
import inspect
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import client_models as models
import pytest
import torch
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from torch import Tensor
from torch.testing import assert_close
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)

IDS = torch.arange(10, 42).view(2, 16)
TASKS = torch.zeros(2, dtype=torch.long)
# What a tuner has to be told, and what of its defaults is larger than a tiny model.
OPTIONS: dict[str, dict[str, Any]] = {
    "ADALORA": {"total_step": 10},
    "ADAPTION_PROMPT": {"adapter_len": 3, "adapter_layers": 2},
    "C3A": {"block_size": 8},
    "CPT": {"cpt_token_ids": [7, 8, 9], "cpt_mask": [1, 1, 1], "cpt_tokens_type_mask": [1, 2, 4]},
    "FOURIERFT": {"n_frequency": 20},
    "MISS": {"r": 4},
    "PSOFT": {"r": 4},
    "ROAD": {"group_size": 8},
    "SHIRA": {"r": 4},
    "TRAINABLE_TOKENS": {"token_indices": [10, 11]},
    "VBLORA": {"vector_length": 8, "num_vectors": 8},
    "WAVEFT": {"n_frequency": 20},
    # PEFT 0.21 leaves out of what it saves the layers of its classifier whose number is the name of an adapter, such as 0.
    "XLORA": {"hidden_size": 32, "xlora_depth": 2, "xlora_size": 8, "xlora_dropout_p": 0.0},
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "LORA, DoRA": ("LORA", {"use_dora": True}),
    "LORA, rank-stabilised": ("LORA", {"use_rslora": True}),
    "LORA, PiSSA": ("LORA", {"init_lora_weights": "pissa"}),
    "LORA, all linear layers": ("LORA", {"target_modules": "all-linear"}),
    "MISS, bat": ("MISS", {"init_weights": "bat"}),
    "PROMPT_TUNING, of a text": ("PROMPT_TUNING", {"prompt_tuning_init": "TEXT", "prompt_tuning_init_text": "abc"}),
}
TUNERS = {kind.value: (kind.value, {}) for kind in PEFT_TYPE_TO_CONFIG_MAPPING} | VARIANTS
FAMILIES = {"bert": AutoModelForSequenceClassification, "bart": AutoModelForSeq2SeqLM}
TASK = {"llama": "CAUSAL_LM", "bert": "SEQ_CLS", "bart": "SEQ_2_SEQ_LM"}
# Our names in those of Llama, BART and BERT: an adapter's numbers follow from its name.
STOCK_NAMES = {
    "llama": {"self_attn_residual.norm": "input_layernorm", "mlp_residual.norm": "post_attention_layernorm"},
    "bart": {"cross_attn": "encoder_attn", "mlp.down_proj": "fc2"},
    "bert": {
        "model.model.layers": "model.bert.encoder.layer",
        **{f"self_attn.{name[0]}_proj": f"attention.self.{name}" for name in ("query", "key", "value")},
        "mlp.down_proj": "output.dense",
        "model.prompt": "bert.prompt",
    },
}
# Where a tuner's own choice of modules is another: the last norm of a stack, which may be none.
TARGETS = {
    ("LN_TUNING", "llama"): (["self_attn_residual.norm", "mlp_residual.norm", "model.norm"], None),
    ("IA3", "bert"): (["k_proj", "v_proj"], ["key", "value"]),
    ("IA3", "bart"): (["k_proj", "v_proj"], ["k_proj", "v_proj"]),
}


def config_of(kind: str, options: dict[str, Any], task: str, folder: Path) -> PeftConfig:
    config_class = next(found for name, found in PEFT_TYPE_TO_CONFIG_MAPPING.items() if name.value == kind)
    given = {"task_type": task, **OPTIONS.get(kind, {}), **options}
    if "num_virtual_tokens" in inspect.signature(config_class).parameters and kind != "CPT":
        given["num_virtual_tokens"] = 3
    if "prompt_tuning_init_text" in options:
        models.tokenizer().save_pretrained(folder / "tokenizer")
        given["tokenizer_name_or_path"] = str(folder / "tokenizer")
    return config_class(**given)


def experts(model: PreTrainedModel, folder: Path) -> dict[str, str]:
    """Two adapters, between which XLoRA chooses."""
    names = [str(folder / type(model).__name__ / str(number)) for number in range(2)]
    for seed, name in enumerate(names):
        torch.manual_seed(seed)
        get_peft_model(copy.deepcopy(model), LoraConfig(r=4, init_lora_weights=False)).save_pretrained(name)
    return {str(number): name for number, name in enumerate(names)}


def family(model: Any) -> str:
    return "bart" if model.config.is_encoder_decoder else "llama" if model.can_generate() else "bert"


def adapted(model: PreTrainedModel, kind: str, options: dict[str, Any], folder: Path) -> Any:
    """A copy with an adapter whose parameters follow from their names: no start at zero, and the same on both."""
    model = copy.deepcopy(model)
    if kind == "XLORA":
        model.config.use_cache = False
        options = options | {"adapters": experts(model, folder)}
    targets = TARGETS.get((kind, family(model)), (None, None))[not type(model).__name__.startswith("Qkv")]
    options = options | ({} if targets is None else {"target_modules": targets})
    options = options | ({"feedforward_modules": []} if kind == "IA3" and targets else {})
    torch.manual_seed(0)
    found = get_peft_model(model, config_of(kind, options, TASK[family(model)], folder)).eval()
    for name, value in found.named_parameters():
        if value.requires_grad:
            for own, stock in STOCK_NAMES[family(model)].items():
                name = name.replace(own, stock)
            noise = torch.randn(value.shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
            value.data = (0.05 * noise + float(bool((value == 1).all()))).to(value)
    return found


def inputs(model: Any) -> dict[str, Tensor]:
    given = {"input_ids": IDS, "labels": IDS if model.can_generate() else torch.tensor([0, 1])}
    kind = next(iter(model.peft_config.values())).peft_type.value if isinstance(model, PeftModel) else ""
    return given | ({"task_ids": TASKS} if kind in ("POLY", "MULTITASK_PROMPT_TUNING") else {})


@torch.no_grad()
def logits(model: Any, like: Any) -> Tensor:
    return model(**inputs(like)).logits


def each_stage(kind: str, options: dict[str, Any], folder: Path) -> dict[str, Callable[[PreTrainedModel], Any]]:
    def learns(model: PreTrainedModel) -> list[Any]:
        found = adapted(model, kind, options, folder)
        before = logits(found, found)
        bare = logits(model, model)
        assert (before[:, -bare.shape[1] :] - bare).abs().max() > 1e-5
        weights = [value for value in found.parameters() if value.requires_grad]
        optimizer = torch.optim.SGD(weights, lr=0.1)
        losses, steps = [], []
        for _ in range(2):
            loss = found(**inputs(found)).loss
            loss.backward()
            steps.append(sum(value.grad.square().sum() for value in weights if value.grad is not None))
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        assert steps[0] > 0
        return [before, *losses, *steps]

    def loaded(model: PreTrainedModel) -> Tensor:
        found = adapted(model, kind, options, folder)
        found.save_pretrained(folder / "saved" / type(model).__name__)
        base = copy.deepcopy(model)
        base.config.use_cache = kind != "XLORA"
        again = PeftModel.from_pretrained(base, folder / "saved" / type(model).__name__).eval()
        assert_close(
            logits(again, again), logits(found, found), rtol=1e-5, atol=1e-5, msg="loaded again it gives other numbers"
        )
        return logits(again, again)

    def merged(model: PreTrainedModel) -> Tensor:
        whole = adapted(model, kind, options, folder).merge_and_unload()
        assert type(whole) is type(model)
        return logits(whole, whole)

    def writes(model: PreTrainedModel) -> Tensor:
        found = adapted(model, kind, options, folder)
        settings = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "pad_token_id": 1}
        tasks = {name: value for name, value in inputs(found).items() if name == "task_ids"}
        if found.active_peft_config.is_prompt_learning and type(model).__module__.startswith("transformers."):
            return step_by_step(found, tasks)
        return found.generate(input_ids=IDS[:, :6], attention_mask=torch.ones_like(IDS[:, :6]), **settings, **tasks)

    return {"a step of training": learns, "saved and loaded": loaded, "merged": merged, "generation": writes}


@torch.no_grad()
def step_by_step(model: Any, tasks: dict[str, Tensor]) -> Tensor:
    """Greedy decoding by whole forwards: `generate` of stock models loses soft prompts from transformers 5.24 on."""
    tokens = IDS[:, :6]
    for _ in range(5):
        scores = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), **tasks).logits[:, -1]
        scores[:, model.config.eos_token_id] = -torch.inf
        tokens = torch.cat((tokens, scores.argmax(-1, keepdim=True)), dim=1)
    return tokens


@pytest.mark.costly(3)
@pytest.mark.parametrize("name", TUNERS)
def test_every_tuner(name: str, tmp_path: Path, side_by_side: Callable[..., None]) -> None:
    both = models.both("llama", AutoModelForCausalLM)
    for stage, use in each_stage(*TUNERS[name], tmp_path).items():
        side_by_side("PEFT", f"{name}, {stage}", use, *both, refusable=stage != "a step of training")


@pytest.mark.costly(3)
@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("name", ["LORA", "IA3", "PROMPT_TUNING", "PREFIX_TUNING", "P_TUNING"])
def test_other_families(kind: str, name: str, tmp_path: Path, side_by_side: Callable[..., None]) -> None:
    auto: Any = FAMILIES[kind]
    stages = each_stage(name, {}, tmp_path)
    for stage in ("a step of training", "saved and loaded"):
        side_by_side("PEFT", f"{name}, {stage}", stages[stage], *models.both(kind, auto))
