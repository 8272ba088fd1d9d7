"""Faults of models, planted into a small Llama: each is a class for `qkv conform` to find."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaMLP

SIZES = {
    **{"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "head_dim": 4},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0},
}


@dataclass(frozen=True)
class Planted:
    """A fault, the check that has to find it, and others that cannot but find it, too."""

    name: str
    check: str
    model_class: Any
    also: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)

    def config(self) -> LlamaConfig:
        return self.model_class.config_class(**SIZES, **self.fields)


FAULTS: list[Planted] = []


def named_llama(base: type, members: dict[str, Any]) -> type:
    """A class of Llama's name, for Trainer smooths the labels of classes that it knows by name."""
    return type("LlamaForCausalLM", (base,), {"__module__": __name__, **members})


def plant(check: str, *also: str, **fields: Any) -> Callable[[Any], Any]:
    """Plant a change of (keywords, output, model), or the members of a class."""

    def made(change: Any) -> Any:
        methods = {name: value for name, value in vars(change).items() if not name.startswith("__")}
        members = methods if isinstance(change, type) else {"changed": staticmethod(change)}
        FAULTS.append(Planted(change.__name__, check, named_llama(Changed, members), also, fields))
        return change

    return made


class Changed(LlamaForCausalLM):
    """A Llama whose outputs are changed."""

    def forward(self, *args: Any, **keywords: Any) -> Any:
        seen = dict(keywords)
        cache = seen.get("cache", seen.get("past_key_values"))
        seen["length"] = cache.get_seq_length() if cache is not None else 0
        output = super().forward(*args, **keywords)
        ids = seen.get("input_ids")
        seen["size"] = (ids if ids is not None else output.logits).shape[1]
        logits = output.logits
        self.changed(self, seen, output)
        if output.loss is not None and output.logits is not logits:
            options = {"vocab_size": output.logits.shape[-1], "num_items_in_batch": seen.get("num_items_in_batch")}
            output["loss"] = self.loss_function(logits=output.logits, labels=seen["labels"], **options)
        return output

    @staticmethod
    def changed(model: Any, seen: dict[str, Any], output: Any) -> Any:
        return None


def masked(seen: dict[str, Any]) -> torch.Tensor | None:
    mask = seen.get("attention_mask")
    return mask if torch.is_tensor(mask) and mask.dim() == 2 else None


@plant("causal", "cache_steps", "cache_chunks", "padding", "masked_content")
def future(model, seen, output):
    logits = output.logits
    output["logits"] = torch.cat([logits[:, :-1] + 0.5 * logits[:, 1:], logits[:, -1:]], 1)


@plant("masked_content")
def counts_ids_under_the_mask(model, seen, output):
    mask = masked(seen)
    if mask is not None and seen.get("input_ids") is not None and mask.shape == seen["input_ids"].shape:
        hidden = (seen["input_ids"] * (mask.cumsum(-1) == 0)).sum(-1)
        output["logits"] = output.logits + 0.01 * hidden[:, None, None]


@plant("padding")
def notices_padding(model, seen, output):
    mask = masked(seen)
    if mask is not None:
        output["logits"] = output.logits + 0.5 * (mask == 0).any(-1)[:, None, None]


@plant("all_padding")
def divides_by_the_number_of_tokens(model, seen, output):
    mask = masked(seen)
    if mask is not None:
        count = mask.sum(-1)[:, None, None]
        output["logits"] = output.logits * count / count


@plant("batch", "padding", "masked_content", "all_padding", "accumulation", "generate_padded")
def mean_of_the_batch(model, seen, output):
    output["logits"] = output.logits + 0.3 * output.logits.mean(0, keepdim=True)


@plant("packing")
class one_backend_forgets_documents:
    def forward(self, *args: Any, **keywords: Any) -> Any:
        ids, positions = keywords.get("input_ids"), keywords.get("position_ids")
        if (
            self.config._attn_implementation == "sdpa"
            and positions is not None
            and keywords.get("attention_mask") is None
        ):
            keywords["attention_mask"] = torch.ones_like(ids)
        return LlamaForCausalLM.forward(self, *args, **keywords)


@plant("backends")
def one_backend_scales(model, seen, output):
    if model.config._attn_implementation == "sdpa":
        output["logits"] = output.logits * 1.01


@plant("stateless")
def remembers_the_longest_text(model, seen, output):
    model.longest = max(getattr(model, "longest", 0), seen["size"])
    output["logits"] = output.logits * (1.01 if model.longest > 24 else 1)


@plant("train_mode")
def other_in_training(model, seen, output):
    output["logits"] = output.logits * (1.01 if model.training else 1)


@plant("bf16")
def overflows_in_half_precision(model, seen, output):
    output["logits"] = output.logits * (1.5 if output.logits.dtype == torch.bfloat16 else 1)


@plant("recorded")
def scores_for_attentions(model, seen, output):
    if output.attentions:
        output["attentions"] = tuple(2 * each for each in output.attentions)


@plant("compiled")
def other_in_a_trace(model, seen, output):
    output["logits"] = output.logits * (1.1 if torch.compiler.is_dynamo_compiling() else 1)


@plant("exported")
def other_in_an_export(model, seen, output):
    output["logits"] = output.logits * (1.1 if torch.compiler.is_exporting() else 1)


@plant("embeds")
class scales_embeddings_twice:
    def forward(self, *args: Any, **keywords: Any) -> Any:
        if keywords.get("inputs_embeds") is not None:
            keywords["inputs_embeds"] = keywords["inputs_embeds"] * 1.1
        return LlamaForCausalLM.forward(self, *args, **keywords)


@plant("generate_keywords", "exported")  # a cache that forward does not name is an output that nothing exports
class cache_under_another_name:
    def forward(self, input_ids=None, attention_mask=None, position_ids=None, labels=None, **more: Any) -> Any:
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids}
        return LlamaForCausalLM.forward(self, **given, labels=labels, **more)


@plant("cache_steps")
def early_steps(model, seen, output):
    if 0 < seen["length"] < 4 and seen["size"] == 1:
        output["logits"] = output.logits + 0.5


@plant("cache_chunks")
def chunks(model, seen, output):
    if seen["length"] and seen["size"] > 1:
        output["logits"] = output.logits + 0.5


@plant("generate_cached")
class prepares_the_wrong_token:
    def prepare_inputs_for_generation(
        self, input_ids: Any, inputs_embeds: Any = None, attention_mask: Any = None, **more: Any
    ) -> Any:
        given = {"inputs_embeds": inputs_embeds, "attention_mask": attention_mask, **more}
        inputs = LlamaForCausalLM.prepare_inputs_for_generation(self, input_ids, **given)
        if inputs.get("input_ids") is not None and inputs["input_ids"].shape[1] == 1:
            inputs["input_ids"] = (inputs["input_ids"] + 1) % 32
        return inputs


@plant("generate_static")
def static_cache_is_another(model, seen, output):
    cache = seen.get("cache", seen.get("past_key_values"))
    if "Static" in type(cache).__name__ + str([type(layer).__name__ for layer in getattr(cache, "layers", ())]):
        output["logits"] = output.logits.flip(-1)


@plant("generate_padded")
class ignores_the_mask_of_a_prompt:
    def prepare_inputs_for_generation(
        self, input_ids: Any, inputs_embeds: Any = None, attention_mask: Any = None, cache: Any = None, **more: Any
    ) -> Any:
        given = {"inputs_embeds": inputs_embeds, "attention_mask": attention_mask, "cache": cache, **more}
        inputs = LlamaForCausalLM.prepare_inputs_for_generation(self, input_ids, **given)
        if inputs.get("attention_mask") is not None and inputs["attention_mask"].dim() == 2:
            inputs["attention_mask"] = torch.ones_like(inputs["attention_mask"])
        return inputs


class WithBuffer(Changed):
    """A Llama with a random buffer that no file holds."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.register_buffer("offsets", torch.randn(1), persistent=False)

    @staticmethod
    def changed(model: Any, seen: dict[str, Any], output: Any) -> Any:
        output["logits"] = output.logits + model.offsets


class UntiedByLoading(LlamaForCausalLM):
    """A Llama whose tables are one tensor until it is loaded."""

    def tie_weights(self, missing_keys: Any = None, **options: Any) -> None:
        super().tie_weights(missing_keys=missing_keys, **options)
        if missing_keys is not None:
            self.lm_head.weight = nn.Parameter(self.lm_head.weight.detach().clone())


@plant("resize")
class keeps_the_old_size:
    def resize_token_embeddings(self, *args: Any, **keywords: Any) -> Any:
        size = self.config.vocab_size
        table = LlamaForCausalLM.resize_token_embeddings(self, *args, **keywords)
        self.config.vocab_size = size
        return table


class HalvingConfig(LlamaConfig):
    """A configuration that derives a field from itself, at each loading again."""

    def __post_init__(self, **keywords: Any) -> None:
        super().__post_init__(**keywords)
        self.attention_dropout = self.attention_dropout / 2


class OfHalvingConfig(LlamaForCausalLM):
    config_class = config = HalvingConfig


@plant("loss")
def loss_counted_twice(model, seen, output):
    if output.loss is not None:
        output["loss"] = 2 * output.loss


@plant("accumulation")
class ignores_the_number_of_items:
    def forward(self, *args: Any, num_items_in_batch=None, **keywords: Any) -> Any:
        return LlamaForCausalLM.forward(self, *args, **keywords)


class UnknownToTrainer(LlamaForCausalLM):
    """A language model that no table of Trainer names."""


@plant("checkpointing")
def half_the_gradient(model, seen, output):
    if model.training and model.is_gradient_checkpointing:
        output["logits"] = output.logits / 2 + output.logits.detach() / 2


class BypassedMLP(LlamaMLP):
    """A projection whose weight is used without its module."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(self.act_fn(self.gate_proj(x)) * self.up_proj(x), self.down_proj.weight)


class Bypassing(LlamaForCausalLM):
    """A Llama with such projections."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        for layer in self.model.layers:
            layer.mlp.__class__ = BypassedMLP


FAULTS += [
    Planted("loses_a_buffer", "reload", named_llama(WithBuffer, {}), ("resize",)),
    Planted("unties_at_loading", "tied", named_llama(UntiedByLoading, {})),
    Planted("halves_a_field", "config", named_llama(OfHalvingConfig, {}), (), {"attention_dropout": 0.4}),
    Planted("name_unknown_to_trainer", "label_smoothing", UnknownToTrainer),
    Planted("bypasses_an_adapter", "lora", named_llama(Bypassing, {})),
]
