"""Turn the config of a model into the boxes of a figure: one tower of them for each stack of layers."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from qkv.configuration.axes import BIAS_POSITIONS, ROTARY_POSITIONS, STATE_KERNELS, TABLE_POSITIONS
from qkv.configuration.configuration_pair import QkvPairConfig
from qkv.configuration.configuration_recurrent import QkvRecurrentConfig
from qkv.scripts.common.words import words_of_class

Role = Literal["input", "embedding", "norm", "attention", "mlp", "recurrent", "head"]
NORMS = {"layer": "LayerNorm", "rms": "RMSNorm"}
# Position encodings that each layer's attention adds to what it projects to queries and keys.
IN_LAYERS = ("sinusoidal_2d", "object_queries")


@dataclass(frozen=True)
class Box:
    """A box with a name and a line below it; `memory` says that it also reads what the tower before it gives."""

    role: Role
    text: str
    detail: str = ""
    memory: bool = False


@dataclass(frozen=True)
class Layers:
    """Equal layers: their number, and their branches, each on a residual connection if they have one.

    `after` is the norm of each sum, where it stands there.
    """

    times: int
    branches: list[list[Box]]
    residual: bool = True
    after: Box | None = None


@dataclass(frozen=True)
class Tower:
    """The boxes of a stack, from its input up."""

    name: str
    items: list[Box | Layers] = field(default_factory=list)


def towers_of(config: Any, model_class: Any) -> list[Tower]:
    """Return the towers of a model, the head at the end of the last; two that are contrasted have none at theirs."""
    if isinstance(config, QkvRecurrentConfig):
        towers = recurrent_towers(config)
    elif isinstance(config, QkvPairConfig):
        towers = [pair_tower(config)]
    else:
        names = [name for name in config.sub_configs if name != "backbone_config"]
        towers = [stack_tower(name, getattr(config, name)) for name in names] or [stack_tower("", config)]
    if head := head_of(config, model_class.__name__):
        towers[-1].items.append(head)
    return towers


def head_of(config: Any, name: str) -> Box | None:
    """Return the box of a head, with the number of its outputs; None for a model without one."""
    _, has_head, end = name.partition("For")
    if name.endswith("DualEncoderModel"):
        return Box("head", "cosine similarity", f"of projections to {config.projection_dim}")
    if not has_head:
        return None
    words = words_of_class(end)
    if any(kind in end for kind in ("LM", "Generation", "Seq2Seq", "CTC", "PreTraining")):
        size = getattr(config.get_text_config(decoder=True), "vocab_size", None) or config.vocab_size
        tied = ", tied to the embedding" if getattr(config, "tie_word_embeddings", False) else ""
        return Box("head", words, f"{size:,} tokens{tied}")
    if "Classification" in end or "Detection" in end:
        return Box("head", words, f"{config.num_labels} classes" + (" and boxes" if "Detection" in end else ""))
    return Box("head", words)


def stack_tower(name: str, part: Any) -> Tower:
    """Return the tower of a stack: input, embedding, layers, and the norm after them."""
    items: list[Box | Layers] = [INPUTS[part.frontend](part), embedding(part)]
    if part.embedding_norm:
        items.append(norm(part, "in place of the first in the layers" if part.skip_first_norm else ""))
    items.append(Layers(part.num_hidden_layers, branches(part), after=None if part.norm_first else norm(part)))
    if part.final_norm:
        items.append(norm(part))
    return Tower(name.removesuffix("_config").replace("_", " "), items)


def pair_tower(config: QkvPairConfig) -> Tower:
    """Return the tower of a model of pairs: how residues are updated in a block, then pairs."""
    residue, pair, width = config.residue_stack(), config.pair_stack(), f"pairs of width {config.pair_hidden_size}"
    columns = [Box("attention", "column attention", heads(residue))] if config.column_attention else []
    bodies = [
        Box("attention", "self-attention", f"{heads(residue)}, biased by pairs"),
        *columns,
        feed_forward(residue),
        Box("mlp", "outer product", f"{config.outer_product}, to {width}"),
        Box("mlp", "triangle multiplication", "outgoing, incoming edges"),
        Box("attention", "triangle attention", f"{heads(pair)}, starting, ending node"),
        feed_forward(pair),
    ]
    blocks = Layers(config.num_hidden_layers, [[norm(residue), body] for body in bodies])
    table = EMBEDDINGS["tokens"](config)[1]
    items: list[Box | Layers] = [
        INPUTS["tokens"](config),
        Box("embedding", "token embedding", f"{table}, {width}"),
        blocks,
    ]
    return Tower("", [*items, *([norm(residue)] if config.final_norm else [])])


INPUTS: dict[str, Callable[[Any], Box]] = {
    "tokens": lambda part: Box("input", "tokens", f"of {part.vocab_size:,}"),
    "patches": lambda part: Box(
        "input", "image", f"{size_of(part.image_size)} pixels" if getattr(part, "image_size", None) else ""
    ),
    "feature_map": lambda part: Box("input", "image", "of any size"),
    "spectrogram": lambda part: Box("input", "sound", f"log-mel spectrogram of {part.num_mel_bins} bins"),
    "object_queries": lambda part: Box("input", "object queries", f"{part.num_queries}, learned"),
}
EMBEDDINGS: dict[str, Callable[[Any], tuple[str, str]]] = {
    "tokens": lambda part: ("token embedding", f"{part.vocab_size:,} x {part.embedding_width}"),
    "patches": lambda part: (f"patches of {size_of(part.patch_size)}", f"projected to {part.hidden_size}"),
    "feature_map": lambda part: ("backbone", f"projected to {part.hidden_size}"),
    "spectrogram": lambda part: (
        f"{len(part.conv_strides)} convolutions",
        f"strides {', '.join(map(str, part.conv_strides))}; width {part.hidden_size}",
    ),
    "object_queries": lambda part: ("zeros", f"of width {part.hidden_size}"),
}


def size_of(side: Any) -> str:
    """Return the height and width of an image or a patch."""
    height, width = (side, side) if isinstance(side, int) else side
    return f"{height} x {width}"


def embedding(part: Any) -> Box:
    """Return the embedding, with the positions that are added to it."""
    text, detail = EMBEDDINGS[part.frontend](part)
    if part.position not in ("none", *ROTARY_POSITIONS, *BIAS_POSITIONS, *IN_LAYERS):
        ends = part.position in TABLE_POSITIONS and part.frontend == "tokens"
        detail += f" + {f'{part.max_position_embeddings:,} ' if ends else ''}{part.position} positions"
    return Box("embedding", text, detail)


def norm(part: Any, detail: str = "") -> Box:
    """Return a norm."""
    return Box("norm", NORMS[part.norm], detail)


def branches(part: Any) -> list[list[Box]]:
    """Return the branches of a layer, with the norm that stands before each unless it comes after the sum."""
    bodies = [attention(part)]
    if getattr(part, "cross_attention", False):
        bodies.append(Box("attention", "cross-attention", heads(part), memory=True))
    bodies.append(feed_forward(part))
    return [[norm(part), body] if part.norm_first else [body] for body in bodies]


def attention(part: Any) -> Box:
    """Return self-attention: heads, position encoding and pattern."""
    name = {"linear": "linear attention", "gated_delta": "gated delta rule"}.get(part.kernel, "self-attention")
    facts = [heads(part)]
    if part.position in (*ROTARY_POSITIONS, *BIAS_POSITIONS, *IN_LAYERS):
        facts.append(part.position.replace("object_queries", "positions of queries"))
    if part.kernel not in STATE_KERNELS and set(part.layer_patterns) != {"full"}:
        facts.append(patterns(part))
    return Box("attention", ("causal " if part.causal else "") + name, ", ".join(facts))


def patterns(part: Any) -> str:
    """Return the attention patterns of the layers, and in how many of them each is."""
    counts = Counter(part.layer_patterns)
    names = {word: f"{word} {part.sliding_window}" if word == "sliding" else word for word in counts}
    return " / ".join(names[word] + (f" x{count}" if len(counts) > 1 else "") for word, count in counts.items())


def heads(part: Any) -> str:
    """Return the heads of attention and their width."""
    groups = part.num_key_value_heads
    shared = f" ({groups} of keys)" if groups != part.num_attention_heads else ""
    return f"{part.num_attention_heads} heads{shared} of {part.head_dim}"


def feed_forward(part: Any) -> Box:
    """Return the feed-forward network with its widths."""
    name = "gated feed-forward" if part.feed_forward == "glu" else "feed-forward"
    if part.parallel_residual:
        name += " of the layer's input"
    return Box("mlp", name, f"{part.hidden_size} → {part.intermediate_size} → {part.hidden_size}, {part.hidden_act}")


def recurrent_towers(config: Any) -> list[Tower]:
    """Return encoder and decoder of a recurrent network."""
    cell = config.cell.upper()
    both = "both ways, " if config.bidirectional else ""
    text = INPUTS["tokens"](config)
    table = Box("embedding", "token embedding", f"{config.vocab_size:,} x {config.embedding_size}")
    encoder_layer = Box("recurrent", cell, f"{both}{config.encoder_hidden_size} units")
    encoder = Tower("encoder", [text, table, Layers(config.num_encoder_layers, [[encoder_layer]], residual=False)])
    first = [Box("recurrent", cell, f"{config.hidden_size} units", memory=config.attention == "none")]
    if config.attention != "none":
        first = [Box("attention", f"{config.attention} attention", "from the last state", memory=True), *first]
    items: list[Box | Layers] = [text, table, Layers(1, [first], residual=False)]
    if (more := config.num_hidden_layers - 1) > 0:
        items.append(Layers(more, [[Box("recurrent", cell, f"{config.hidden_size} units")]], residual=False))
    if config.readout != "none":
        items.append(Box("mlp", f"{config.readout} readout", f"of width {config.readout_size}"))
    return [encoder, Tower("decoder", items)]
