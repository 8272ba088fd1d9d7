"""Official architectures at a tiny size: families, rows of (class, config), and inputs for each head."""

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
Inputs = Callable[[str], dict[str, Tensor]]


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


def replaced(side: str) -> dict[str, Tensor]:
    inputs = segments(side)
    return {**inputs, "labels": inputs["input_ids"] % 2}


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


def sentences(side: str) -> dict[str, Tensor]:
    """Each text ends with the end-of-sequence token, and has a class."""
    inputs = tokens(side=side)
    mask = inputs["attention_mask"]
    last = (mask * torch.arange(LENGTH)).argmax(-1, keepdim=True)
    return {**inputs, "input_ids": inputs["input_ids"].scatter(1, last, END), "labels": torch.tensor([2, 0, 1])}


def answers(side: str) -> dict[str, Tensor]:
    """Spans for a model whose positions cannot be told."""
    return {name: value for name, value in spans(side).items() if name != "position_ids"}


def masked_translation_labels(side: str) -> dict[str, Tensor]:
    """For a model that numbers padding of its own accord: what is read of the target is told as well."""
    inputs = translation_labels(side)
    return {**inputs, "decoder_attention_mask": (inputs["labels"] != -100).long()}


def images(side: str) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(BATCH, 3, 12, 12, generator=torch.Generator().manual_seed(1))}


def image_labels(side: str) -> dict[str, Tensor]:
    return {**images(side), "labels": torch.tensor([2, 0, 1])}


def oblong_labels(side: str) -> dict[str, Tensor]:
    """Images of another size and shape than the config's."""
    pixels = torch.randn(BATCH, 3, 12, 20, generator=torch.Generator().manual_seed(1))
    return {"pixel_values": pixels, "labels": torch.tensor([2, 0, 1])}


def masked_patches(side: str) -> dict[str, Tensor]:
    return {**images(side), "bool_masked_pos": torch.arange(BATCH * 9).view(BATCH, 9) % 3 == 0}


def sound(side: str, *, length: int = 23, bins: int = 10) -> dict[str, Tensor]:
    """Spectrograms of odd length, all but the first padded at the end, more and more."""
    features = torch.randn(BATCH, length, bins, generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(length) < length - 5 * torch.arange(BATCH)[:, None]).long()
    mask = mask if side == "right" else torch.ones_like(mask)
    return {"input_features": features * mask[..., None], "attention_mask": mask}


def recognition(side: str) -> dict[str, Tensor]:
    return {**sound(side), **{name: value for name, value in translation("none").items() if "decoder" in name}}


def recognition_labels(side: str) -> dict[str, Tensor]:
    """For a model that numbers padding of its own accord: what is read of the target is told as well."""
    inputs = masked_translation_labels("none")
    return {**sound(side), **{name: inputs[name] for name in ("labels", "decoder_attention_mask")}}


def window(side: str) -> dict[str, Tensor]:
    """As long as the encoder reads, bins before frames; padding is silence like any other."""
    inputs = sound(side, length=22)
    return {**inputs, "input_features": inputs["input_features"].transpose(1, 2)}


def window_words(side: str) -> dict[str, Tensor]:
    return {**recognition(side), **window(side)}


def window_labels(side: str) -> dict[str, Tensor]:
    return {**window(side), "labels": translation_labels("none")["labels"]}


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
    the name of what theirs does not train and ours does.
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
        return self.family.prefix + self.head

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
            buffer for name, buffer in stored.items() if ".backbone." in f".{name}" or name == "final_logits_bias"
        ]
        with torch.no_grad():
            for tensor in [parameter for parameter in model.parameters() if parameter.requires_grad] + buffers:
                tensor.add_(0.05 * torch.randn_like(tensor))
        silence(model)
        return model

    @property
    def back(self) -> str:
        """The class as which it is stored again."""
        return (self.family.stored_as or self.family.prefix) + self.head

    @property
    def generates(self) -> bool:
        return self.head.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel"))

    @property
    def sides(self) -> tuple[str, ...]:
        """Sides on which padding leaves the official class's numbers right."""
        return tuple(side for side in self.family.sides if side != "left" or self.head not in self.family.first_token)

    def real(self, name: str, value: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        """An output at its real tokens: those of padding are read by nobody, and each side fills them as it likes."""
        source = inputs.get("attention_mask")
        mask = source if name.startswith("encoder") else inputs.get("decoder_attention_mask", source)
        if mask is None:
            return value
        for _ in range(getattr(self.config(), "num_conv_layers", 0) if name.startswith("encoder") else 0):
            mask = mask[:, ::2]
        mask = mask.flatten(0, -2).bool()
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


# Untied, these are parameters that nothing reads: a second name for the bias of BERT's words, BART's shared table.
UNREAD = {
    "cls.predictions.bias": "cls.predictions.decoder.bias",
    "lm_head.bias": "lm_head.decoder.bias",
    "shared.weight": "decoder.embed_tokens.weight",
    "model.shared.weight": "model.decoder.embed_tokens.weight",
}


@torch.no_grad()
def silence(model: PreTrainedModel) -> None:
    """Give a parameter that nothing reads the values of the one that is read in its place."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for unread, read in UNREAD.items():
        if unread in parameters and read in parameters:
            parameters[unread].copy_(parameters[read])


def rope(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1000.0, "factor": 2.0, **parameters}}
