"""The official architectures at a tiny size, with every head, inputs that fit, and one way of being wrong each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

BATCH, LENGTH, VOCABULARY, LABELS = 3, 9, 61, 3
PAD, START, END = 1, 2, 3
IDS = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
# Dropout stays off in evaluation, and its rates have to survive the way there and back.
DROPOUT = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
LAYERS = {"encoder_layers": 3, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 40}
HEADS = {"encoder_attention_heads": 4, "decoder_attention_heads": 2}
STACKS = {"d_model": 32, **LAYERS, **HEADS, "dropout": 0.2, "attention_dropout": 0.3, "activation_dropout": 0.15}
LLAMA = {**SIZES, "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 32, "attention_dropout": 0.3}
T5 = {"d_model": 32, "d_kv": 6, "d_ff": 48, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 4}
IMAGE = {**SIZES, **DROPOUT, "image_size": 12, "patch_size": 4, "encoder_stride": 4, "num_labels": LABELS}
BUCKETS = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "dropout_rate": 0.2}

# Official configs. Weights are drawn wide, so that each part of a model shows in its output.
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {**SIZES, **DROPOUT, "max_position_embeddings": 24, "initializer_range": 0.1, "layer_norm_eps": 1e-5},
    "roberta": {**SIZES, **DROPOUT, "max_position_embeddings": 24, "initializer_range": 0.1, "classifier_dropout": 0.4},
    "gpt2": {
        **{"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 24, "n_inner": 48, "initializer_range": 0.1},
        **{"embd_pdrop": 0.2, "attn_pdrop": 0.3, "resid_pdrop": 0.15},
    },
    "llama": {**LLAMA, "initializer_range": 0.1},
    "mistral": {**LLAMA, "initializer_range": 0.1, "sliding_window": 4},
    "t5": {**T5, **BUCKETS, "decoder_start_token_id": PAD, "initializer_factor": 0.5},
    "bart": {**STACKS, "max_position_embeddings": 24, "init_std": 0.1, "decoder_start_token_id": END},
    "marian": {**STACKS, "max_position_embeddings": 24, "init_std": 0.1, "decoder_start_token_id": PAD},
    "vit": {**IMAGE, "initializer_range": 0.1},
    "deit": {**IMAGE, "initializer_range": 0.1},
}


def tokens(seed: int = 1, *, length: int = LENGTH, side: str = "right") -> dict[str, Tensor]:
    """Rows of random tokens, none special; all but the first padded, more and more, on one side or on none."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, VOCABULARY, (BATCH, length), generator=generator)
    mask = (torch.arange(length) < length - 2 * torch.arange(BATCH)[:, None]).long()
    mask = {"right": mask, "left": mask.flip(-1), "none": torch.ones_like(mask)}[side]
    return {"input_ids": ids.where(mask.bool(), torch.tensor(PAD)), "attention_mask": mask}


def positions(mask: Tensor) -> Tensor:
    return (mask.cumsum(-1) - 1).clamp(min=0)


def labelled(inputs: dict[str, Tensor]) -> Tensor:
    """A label for some of the real tokens."""
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(0, LABELS, inputs["input_ids"].shape, generator=generator)
    due = inputs["attention_mask"].bool() & (torch.arange(labels.shape[-1]) % 2 == 0)
    return labels.where(due, torch.tensor(-100))


def text(side: str) -> dict[str, Tensor]:
    return tokens(side=side)


def segments(side: str) -> dict[str, Tensor]:
    inputs = tokens(side=side)
    return {**inputs, "token_type_ids": (torch.arange(LENGTH) > 4).long().expand(BATCH, -1)}


def token_labels(side: str) -> dict[str, Tensor]:
    inputs = tokens(side=side)
    return {**inputs, "labels": labelled(inputs)}


def pretraining(side: str) -> dict[str, Tensor]:
    inputs = segments(side)
    return {**inputs, "labels": labelled(inputs), "next_sentence_label": torch.tensor([0, 1, 1])}


def classes(side: str) -> dict[str, Tensor]:
    return {**tokens(side=side), "labels": torch.tensor([2, 0, 1])}


def spans(side: str) -> dict[str, Tensor]:
    """Padding takes part in this loss, so its positions have to be the same on both sides."""
    inputs = tokens(side=side)
    marks = {"start_positions": torch.tensor([1, 0, 30]), "end_positions": torch.tensor([4, 2, 3])}
    return {**inputs, **marks, "position_ids": positions(inputs["attention_mask"])}


def choices(side: str) -> dict[str, Tensor]:
    inputs = tokens(side=side)
    stacked = {name: torch.stack((value, value.flip(0)), 1) for name, value in inputs.items()}
    return {**stacked, "labels": torch.tensor([0, 1, 1])}


def translation(side: str) -> dict[str, Tensor]:
    """A source padded on either side, a target padded on the right."""
    target = tokens(2, length=7)
    decoder = {"decoder_input_ids": target["input_ids"], "decoder_attention_mask": target["attention_mask"]}
    return {**tokens(side=side), **decoder}


def translation_labels(side: str) -> dict[str, Tensor]:
    target = tokens(2, length=7)
    labels = target["input_ids"].where(target["attention_mask"].bool(), torch.tensor(-100))
    return {**tokens(side=side), "labels": labels}


def images(side: str) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(BATCH, 3, 12, 12, generator=torch.Generator().manual_seed(1))}


def image_labels(side: str) -> dict[str, Tensor]:
    return {**images(side), "labels": torch.tensor([2, 0, 1])}


def masked_patches(side: str) -> dict[str, Tensor]:
    return {**images(side), "bool_masked_pos": torch.arange(BATCH * 9).view(BATCH, 9) % 3 == 0}


Inputs = Callable[[str], dict[str, Tensor]]
ENCODER_HEADS: dict[str, Inputs] = {
    "Model": segments,
    "ForMaskedLM": token_labels,
    "ForSequenceClassification": classes,
    "ForTokenClassification": token_labels,
    "ForQuestionAnswering": spans,
    "ForMultipleChoice": choices,
}
DECODER_HEADS: dict[str, Inputs] = {
    "Model": text,
    "ForCausalLM": token_labels,
    "ForSequenceClassification": classes,
    "ForTokenClassification": token_labels,
    "ForQuestionAnswering": spans,
}
VISION_HEADS: dict[str, Inputs] = {
    "Model": images,
    "ForImageClassification": image_labels,
    "ForMaskedImageModeling": masked_patches,
}
TRANSLATORS: dict[str, Inputs] = {"Model": translation, "ForConditionalGeneration": translation_labels}
# Every class, and a mistake that a parity test has to notice: other fields of our config under the same weights.
CLASSES: dict[str, tuple[str, dict[str, Inputs], dict[str, Any]]] = {
    "bert": ("Bert", {**ENCODER_HEADS, "ForPreTraining": pretraining}, {"norm_eps": 1e-1}),
    "roberta": ("Roberta", ENCODER_HEADS, {"position_offset": 1, "max_position_embeddings": 23}),
    "gpt2": (
        "GPT2",
        {"LMHeadModel" if head == "ForCausalLM" else head: inputs for head, inputs in DECODER_HEADS.items()},
        {"attention_multiplier": 1.0},
    ),
    "llama": ("Llama", DECODER_HEADS, {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}),
    "mistral": ("Mistral", DECODER_HEADS, {"sliding_window": 5}),
    "t5": ("T5", TRANSLATORS, {"encoder.attention_multiplier": None}),
    "bart": ("Bart", TRANSLATORS, {"decoder.position_offset": 1, "decoder.max_position_embeddings": 25}),
    "marian": (
        "Marian",
        {"Model": translation, "MTModel": translation_labels},
        {"encoder.position": "sinusoidal"},
    ),
    "vit": ("ViT", VISION_HEADS, {"hidden_act": "relu"}),
    "deit": ("DeiT", {**VISION_HEADS, "ForImageClassificationWithTeacher": images}, {"norm_eps": 1e-1}),
}


@dataclass(frozen=True, eq=False)
class Row:
    """One official class at one config."""

    architecture: str
    class_name: str
    inputs: Inputs
    wrong: dict[str, Any]
    fields: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def __str__(self) -> str:
        return f"{self.class_name}{self.name and '-'}{self.name}"

    def config(self) -> PreTrainedConfig:
        fields = dict(CONFIGS[self.architecture])
        if "num_labels" not in fields and not self.class_name.endswith(("QuestionAnswering", "Teacher")):
            fields["id2label"] = {0: "no", 1: "yes", 2: "who knows"}
            fields["label2id"] = {"no": 0, "yes": 1, "who knows": 2}
        ids = {} if "image_size" in fields else {**IDS, "vocab_size": VOCABULARY}
        return transformers.AutoConfig.for_model(self.architecture, **{**ids, **fields, **self.fields})

    def build(self) -> PreTrainedModel:
        """The official model with random weights, every one of them moved off its initial value."""
        torch.manual_seed(0)
        model_class = getattr(transformers, self.class_name)
        model = model_class._from_config(self.config(), attn_implementation="eager", **self.options).eval()
        buffers = [model.final_logits_bias] if hasattr(model, "final_logits_bias") else []
        with torch.no_grad():
            for tensor in [parameter for parameter in model.parameters() if parameter.requires_grad] + buffers:
                tensor.add_(0.05 * torch.randn_like(tensor))
        return model

    @property
    def generates(self) -> bool:
        return self.class_name.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel"))

    @property
    def sides(self) -> tuple[str, ...]:
        """Where padding may stand so that the official model still reads the text right."""
        if self.architecture in ("vit", "deit"):
            return ("none",)
        pooled = ("ForSequenceClassification", "ForMultipleChoice", "ForPreTraining", "Model")
        first_token = self.architecture in ("bert", "roberta") and self.class_name.endswith(pooled)
        return (
            ("none", "right") if first_token or self.architecture in ("bart", "marian") else ("none", "right", "left")
        )

    @property
    def translates(self) -> bool:
        return self.architecture in ("t5", "bart", "marian")

    def real(self, name: str, value: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        """An output at its real tokens: those of padding are read by nobody, and each side fills them as it likes."""
        of_target = self.translates and not name.startswith("encoder")
        mask = inputs.get("decoder_attention_mask" if of_target else "attention_mask")
        if mask is None:
            return value
        mask = mask.flatten(0, -2).bool()
        rows = value.transpose(1, 2) if "attentions" in name else value
        return rows[mask] if rows.shape[:2] == mask.shape else value

    def placed(self, inputs: dict[str, Tensor], *, ours: bool) -> dict[str, Tensor]:
        """What one of the two has to be told about positions, which ours takes from the mask."""
        mask = inputs.get("attention_mask")
        if ours or mask is None or self.translates:
            return inputs
        if self.architecture == "roberta" and "position_ids" in inputs:
            return {**inputs, "position_ids": inputs["position_ids"] + PAD + 1}
        # Left padding shifts the absolute positions of an official model unless it is told of it.
        shifted = self.architecture in ("bert", "gpt2") and not mask.flatten(0, -2)[:, 0].all()
        return {**inputs, "position_ids": positions(mask)} if shifted else inputs


def rows(architecture: str) -> list[Row]:
    prefix, heads, wrong = CLASSES[architecture]
    return [Row(architecture, prefix + head, inputs, wrong) for head, inputs in heads.items()]


def variant(architecture: str, head: str, name: str, wrong: dict[str, Any] | None = None, **fields: Any) -> Row:
    """The same class at a config that takes another path through the tables."""
    prefix, heads, default = CLASSES[architecture]
    return Row(architecture, prefix + head, heads[head], wrong or default, fields, name=name)


def rope(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1000.0, "factor": 2.0, **parameters}}


LOW, HIGH = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}, {"original_max_position_embeddings": 8}
VARIANTS = [
    Row("bert", "BertModel", segments, {"norm_eps": 1e-1}, options={"add_pooling_layer": False}, name="no pooler"),
    Row("vit", "ViTModel", images, {"norm_eps": 1e-1}, options={"add_pooling_layer": False}, name="no pooler"),
    variant("vit", "ForImageClassification", "wide", image_size=[12, 12], patch_size=[4, 4], encoder_stride=16),
    variant("bert", "ForMaskedLM", "gelu_new", {"hidden_act": "relu"}, hidden_act="gelu_new"),
    variant("gpt2", "LMHeadModel", "unscaled", {"attention_multiplier": None}, scale_attn_weights=False),
    variant("gpt2", "LMHeadModel", "untied", {"norm_eps": 1e-1}, tie_word_embeddings=False, n_inner=None),
    variant("llama", "ForCausalLM", "biased", attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    variant("llama", "ForCausalLM", "linear", **rope("linear")),
    variant("llama", "ForCausalLM", "dynamic", {"norm_eps": 1e-1}, **rope("dynamic"), max_position_embeddings=6),
    variant("llama", "ForCausalLM", "llama3", **rope("llama3", **LOW, **HIGH)),
    variant("llama", "ForCausalLM", "yarn", **rope("yarn", **HIGH)),
    variant("mistral", "ForCausalLM", "full", {"norm_eps": 1e-1}, sliding_window=None),
    variant("t5", "ForConditionalGeneration", "v1.1", feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    variant("t5", "Model", "v1.1", feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    variant("t5", "ForConditionalGeneration", "silu", feed_forward_proj="gated-silu"),
    variant("bart", "ForConditionalGeneration", "scaled", scale_embedding=True),
    variant("marian", "MTModel", "scaled", scale_embedding=True, activation_function="swish"),
    variant(
        "marian",
        "MTModel",
        "two vocabularies",
        share_encoder_decoder_embeddings=False,
        decoder_vocab_size=VOCABULARY + 4,
    ),
]
ROWS = [row for architecture in CLASSES for row in rows(architecture)] + VARIANTS
