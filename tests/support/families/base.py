"""Official architectures: families, and rows of one class at one config each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from families.inputs import END, PAD, START, VOCABULARY, positions

IDS = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END}
Inputs = Callable[[str], dict[str, Tensor]]


NAMED_OTHERWISE = {"Gemma3TextForCausalLM": "Gemma3ForCausalLM", "Qwen3_5TextForCausalLM": "Qwen3_5ForCausalLM"}


@dataclass(frozen=True, eq=False)
class Family:
    """One official architecture: every class by what it is fed, a config, and a mistake that a test has to notice.

    `wrong` are other fields of our config under the same weights. `sides` says where padding may stand so that the
    official model still reads the text right: BART and its kin count padding as positions and take no position ids, so
    padding in front is for them another text. A head named in `first_token` takes the first token for a real one,
    padding or not. `told` is what theirs has to be told of positions: "positions" where padding stands in front, or
    "offset" where position ids count from the padding id. `padding_idx` says that their table gives the padding token
    no gradient as an input, even where a target starts with it; ours learns from whatever is read. `stored_as` is the
    prefix of the classes this comes back as, where its architecture is that of another. `frozen` is found in
    the name of what theirs does not train and ours does; `filled` in that of biases that theirs lacks. `windowed` says that
    their weights are those of global tokens, then of near ones.
    """

    model_type: str
    prefix: str
    heads: dict[str, Inputs]
    config: dict[str, Any]
    wrong: dict[str, Any]
    sides: tuple[str, ...] = ("none", "right", "left")
    first_token: tuple[str, ...] = ()
    told: str | None = None
    translates: bool = False
    padding_idx: bool = False
    stored_as: str = ""
    frozen: str = " "
    filled: str = " "
    windowed: bool = False

    def rows(self) -> list["Row"]:
        """Every class at the config."""
        return [Row(self, head, self.wrong) for head in self.heads]

    def variant(self, head: str, name: str, wrong: dict[str, Any] | None = None, **fields: Any) -> "Row":
        """The same class at a config that takes another path through the tables."""
        return Row(self, head, wrong or self.wrong, fields, name=name)


@dataclass(frozen=True, eq=False)
class Row:
    """One official class at one config."""

    family: Family
    head: str
    wrong: dict[str, Any]
    fields: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def __str__(self) -> str:
        return f"{self.class_name}{self.name and '-'}{self.name}"

    @property
    def class_name(self) -> str:
        return NAMED_OTHERWISE.get(name := self.family.prefix + self.head, name)

    def inputs(self, side: str) -> dict[str, Tensor]:
        return self.family.heads[self.head](side)

    def config(self) -> PreTrainedConfig:
        fields = dict(self.family.config)
        if "num_labels" not in fields and not self.head.endswith(("QuestionAnswering", "Teacher")):
            fields["id2label"] = {0: "no", 1: "yes", 2: "who knows"}
            fields["label2id"] = {"no": 0, "yes": 1, "who knows": 2}
        ids = (
            {}
            if fields.keys() & {"image_size", "vision_config", "backbone_config"}
            else {**IDS, "vocab_size": VOCABULARY}
        )
        return transformers.AutoConfig.for_model(self.family.model_type, **{**ids, **fields, **self.fields})

    def build(self) -> PreTrainedModel:
        """The official model with random weights, every one of them moved off its initial value."""
        torch.manual_seed(0)
        model_class = getattr(transformers, self.class_name)
        model = model_class._from_config(self.config(), attn_implementation="eager", **self.options).eval()
        stored = {name: buffer for name, buffer in model.named_buffers() if name in model.state_dict()}
        buffers = [
            buffer
            for name, buffer in stored.items()
            if ".backbone." in f".{name}" or name.endswith(("final_logits_bias", "e_score_correction_bias"))
        ]
        with torch.no_grad():
            moved = [part for name, part in model.named_parameters() if part.requires_grad or "expert_bias" in name]
            for tensor in moved + buffers:
                tensor.add_(0.05 * torch.randn_like(tensor))
        silence(model)
        return model

    @cached_property
    def convolutions(self) -> int:
        """How often the encoder halves the length of sound."""
        return getattr(self.config(), "num_conv_layers", 0)

    @property
    def back(self) -> str:
        """The class as which it is stored again."""
        return NAMED_OTHERWISE.get(name := (self.family.stored_as or self.family.prefix) + self.head, name)

    @property
    def generates(self) -> bool:
        return self.head.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel"))

    @property
    def sides(self) -> tuple[str, ...]:
        """Sides on which padding leaves the official class's numbers right."""
        return tuple(side for side in self.family.sides if side != "left" or self.head not in self.family.first_token)

    def real(self, name: str, value: Tensor, inputs: dict[str, Tensor], *, ours: bool) -> Tensor:
        """An output at its real tokens: those of padding are read by nobody, and each side fills them as it likes."""
        source = inputs.get("attention_mask")
        mask = source if name.startswith("encoder") else inputs.get("decoder_attention_mask", source)
        if mask is None:
            return value
        for _ in range(self.convolutions if name.startswith("encoder") else 0):
            mask = mask[:, ::2]
        mask = mask.flatten(0, -2).bool()
        if name.startswith("router_logits"):
            return value[mask.flatten()]
        value = dense(value, mask.shape[-1]) if "attentions" in name and value.ndim == 5 else value
        if self.family.windowed and name.startswith(("attentions", "encoder_attentions")):
            marks = inputs["global_attention_mask"].flatten(0, -2).bool() & mask
            value = value if ours else dense_windows(value, marks, near_tokens(self.config()))
            value = value * ~marks[:, None, :, None]  # theirs are apart
        rows = value.transpose(1, 2) if "attentions" in name else value
        return rows[mask] if rows.shape[:2] == mask.shape else value

    def placed(self, inputs: dict[str, Tensor], *, ours: bool) -> dict[str, Tensor]:
        """Add the position ids that the official class needs and ours takes from the mask."""
        mask = inputs.get("attention_mask")
        if ours or mask is None:
            return inputs
        if self.family.told == "offset" and "position_ids" in inputs:
            return {**inputs, "position_ids": inputs["position_ids"] + PAD + 1}
        # Left padding shifts the absolute positions of an official model unless it is told of it.
        shifted = self.family.told == "positions" and not mask.flatten(0, -2)[:, 0].all()
        return {**inputs, "position_ids": positions(mask)} if shifted else inputs


# Parts that nothing reads, and that are made anew on the way back.
UNREAD_PARTS = dict.fromkeys(
    ("BigBirdForMaskedLM", "BigBirdForSequenceClassification", "BigBirdForTokenClassification"), "bert.pooler."
)
# Untied, these are parameters that nothing reads: a second name for the bias of BERT's words, BART's shared table.
UNREAD = {
    "cls.predictions.bias": "cls.predictions.decoder.bias",
    "lm_head.bias": "lm_head.decoder.bias",
    "shared.weight": "decoder.embed_tokens.weight",
    "model.shared.weight": "model.decoder.embed_tokens.weight",
    "led.shared.weight": "led.decoder.embed_tokens.weight",
}


@torch.no_grad()
def silence(model: PreTrainedModel) -> None:
    """Give a parameter that nothing reads the values of the one that is read in its place."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for unread, read in UNREAD.items():
        if unread in parameters and read in parameters:
            parameters[unread].copy_(parameters[read])
    for name, parameter in parameters.items():
        if name.startswith(UNREAD_PARTS.get(type(model).__name__, " ")):
            parameter.requires_grad_(False)


def dense(blocks: Tensor, length: int) -> Tensor:
    """Weights of all keys from those of local attention, a block and its neighbours: (B, N, H, L, 3 L) -> (B, H, T, T)."""
    batch, count, heads, size, _ = blocks.shape
    whole = blocks.new_zeros(batch, heads, count * size, (count + 2) * size)
    for block in range(count):
        rows, keys = slice(block * size, (block + 1) * size), slice(block * size, (block + 3) * size)
        whole[:, :, rows, keys] = blocks[:, block]
    return whole[:, :, :length, size : size + length]


def near_tokens(config: PreTrainedConfig) -> int:
    """Tokens on either side in a window of theirs."""
    width = config.attention_window
    return (width if isinstance(width, int) else width[0]) // 2


def dense_windows(weights: Tensor, marks: Tensor, near: int) -> Tensor:
    """Weights of all keys from those of a row's global tokens, then of keys `near` to each query: -> (B, H, T, T)."""
    batch, heads, length, width = weights.shape
    whole = weights.new_zeros(batch, heads, length, length)
    for row in range(batch):
        for index, place in enumerate(marks[row].nonzero().flatten().tolist()):
            whole[row, :, :, place] += weights[row, :, :, index]
    for query in range(length):
        for key in range(max(query - near, 0), min(query + near + 1, length)):
            whole[:, :, query, key] += weights[:, :, query, width - 1 - near + key - query]
    return whole
