"""Conversion of models of images: the heads and codecs of `image_models.yaml`.

A backbone is the same module on both sides, so its tensors keep their names, and its config goes over as it is.
"""

from dataclasses import replace
from pathlib import Path

from .config import Architecture, Codec, Head, Values, canonical, one_spelling, output_bias
from .decoder import has_bias
from .encoder import CLASSIFIER, MODEL, POOLING, UNPOOLED, UNPOOLED_MODEL
from .tables import read_architectures
from .weights import ROWS, placed

BARE_MODEL = Head("Model")
IMAGES = Head("ForImageClassification", CLASSIFIER, UNPOOLED)
# The stride of the pixel decoder is the patch size.
PIXELS = Head("ForMaskedImageModeling", ROWS["pixels"], fields={"patch_size": "encoder_stride"}, free=POOLING)

PATCH_SIZE = Codec("patch_size", read=lambda size, theirs: canonical(size))
QKV_BIAS = output_bias("qkv_bias")
POOLER_ACT = Codec("pooler_act", lambda act, _: None if act == "tanh" else act, lambda act, _: act or "tanh")


def inner_width(width: int, ratio: int, *, gated: bool) -> int:
    """Return the feed-forward's width; a gate's third matrix is paid for by a third of it, rounded up to eights."""
    return (int(width * ratio * 2 / 3) + 7) // 8 * 8 if gated else width * ratio


def ratio_of(inner: int, ours: Values) -> int:
    """Return the whole ratio that gives this width, or the usual one where none does."""
    gated = ours["feed_forward"] == "glu"
    ratios = range(1, 2 + 2 * inner // ours["hidden_size"])
    return next((ratio for ratio in ratios if inner_width(ours["hidden_size"], ratio, gated=gated) == inner), 4)


INNER_WIDTH = Codec(
    "mlp_ratio",
    read=lambda ratio, theirs: inner_width(theirs["hidden_size"], ratio, gated=theirs["use_swiglu_ffn"]),
    write=ratio_of,
)
# The gate's is always SiLU, whatever the config says.
ACT_OF_GATE = Codec(
    "hidden_act",
    read=lambda act, theirs: "silu" if theirs["use_swiglu_ffn"] else one_spelling(act),
    write=lambda act, ours: "gelu" if ours["feed_forward"] == "glu" else act,
)
ROPE_THETA = Codec(
    "rope_theta", lambda theta, _: {"rope_type": "default", "rope_theta": theta}, lambda rope, _: rope["rope_theta"]
)
QUERY_BIAS = Codec(
    "query_bias",
    lambda biased, theirs: ["q_proj"] * biased + ["v_proj"] * theirs["value_bias"] + ["o_proj"],
    lambda biases, _: has_bias(biases, "q_proj"),
)
# Their second switch has no field of ours; it stands beside one that never changes.
VALUE_BIAS = Codec("value_bias", write=lambda _, ours: has_bias(ours["attention_bias"], "v_proj"))

# In the first release the id of another token was the end of a text, so the text is read at the highest id instead.
LEGACY_END = 2
END_OF_TEXT = Codec(
    "eos_token_id",
    read=lambda end, theirs: "highest" if end == LEGACY_END else "end",
    write=lambda pooling, ours: LEGACY_END if pooling == "highest" else ours["eos_token_id"],
)


def dual(rest: Architecture, text: Architecture, image: Architecture) -> Architecture:
    """Join encoders of texts and images with the rest of a model, which has no fields but theirs."""
    halves = (("text_config.", text), ("vision_config.", image))
    fields = [(part, *each) for part, half in halves for each in half.fields.items()]
    codecs = [(part, name, Codec(each) if isinstance(each, str) else each) for part, name, each in fields]
    unread = [part + name for part, half in halves for name in half.free.split()]
    return replace(
        rest,
        fields={part + name: replace(codec, name=part + codec.name) for part, name, codec in codecs},
        words={**rest.words, **{part + name: word for part, half in halves for name, word in half.words.items()}},
        rows=(*placed(text.rows, *["text_model."] * 2), *placed(image.rows, *["vision_model."] * 2), *rest.rows),
        free=" ".join([rest.free, *unread]),
        assumed={part + name: value for part, half in halves for name, value in half.assumed.items()},
    )


def read_backbone(value: object, theirs: Values) -> Values:
    """Read the config of a backbone from the fields that lie flat."""
    named = {name.partition("."): item for name, item in theirs.items()}
    return {name: item for (part, _, name), item in named.items() if part == "backbone_config"}


BACKBONE = Codec("backbone_config", read_backbone)
OF_OTHERS = {"MODEL": MODEL, "UNPOOLED_MODEL": UNPOOLED_MODEL}
GROUPS = read_architectures(Path(__file__).with_suffix(".yaml"), globals() | OF_OTHERS)
