"""Conversion of encoder-decoders, of text and from speech to text: the heads and codecs of `encoder_decoder.yaml`."""

from pathlib import Path

from .config import AFTER_PADDING, Codec, Head, Values, one_spelling
from .decoder import ANSWERS, LANGUAGE_MODEL, MODEL
from .encoder import TOKENS, WINDOW
from .tables import read_architectures
from .weights import ROWS

SCORED = Head("ForConditionalGeneration", LANGUAGE_MODEL)
# Only where their buffer is not zero, our head has a bias.
BIASED = Head("ForConditionalGeneration", (*LANGUAGE_MODEL, *ROWS["logits_bias"]))
TEXTS = Head("ForSequenceClassification", ROWS["classification_head"])
SPEECH_SCORED = Head("ForSpeechSeq2Seq", LANGUAGE_MODEL, theirs="ForConditionalGeneration")


def feed_forward_proj(value: object, ours: Values) -> str:
    """Name the activation and the gate; "gated-gelu" has always meant the approximation."""
    act = ours["hidden_act"]
    return f"gated-{'gelu' if act == 'gelu_new' else act}" if ours["feed_forward"] == "glu" else act


# Both are saved, and theirs computes with the second.
ACT_OF_T5 = Codec("feed_forward_proj", lambda _, theirs: one_spelling(theirs["dense_act_fn"]), feed_forward_proj)
GATE_OF_T5 = Codec(
    "feed_forward_proj", lambda name, theirs: "glu" if name.startswith("gated-") else "mlp", feed_forward_proj
)
SCALED_OUTPUTS = Codec(
    "scale_decoder_outputs",
    lambda scaled, theirs: theirs["d_model"] ** -0.5 if scaled else 1.0,
    lambda factor, ours: factor != 1.0,
)
LOCAL_RADIUS = Codec("local_radius", lambda radius, theirs: radius + 1, lambda window, ours: (window or 1) - 1)
# Half of the filters gate the other half.
HALF_OF_FILTERS = Codec("conv_channels", lambda filters, theirs: filters // 2, lambda half, ours: 2 * half)
STRIDES_OF_TWO = Codec("num_conv_layers", lambda count, theirs: [2] * count, lambda strides, ours: len(strides))


def offset(pad: int, theirs: Values) -> int:
    """Return the first position of sound; stock Speech2Text takes it for padding when the padding id is 0."""
    if not pad:
        raise ValueError(f"pad_token_id={pad} hides every frame of sound from the encoder's positions")
    return AFTER_PADDING.read(pad, theirs)


FIRST_FRAME = Codec("pad_token_id", offset, AFTER_PADDING.write)
OF_OTHERS = {"MODEL": MODEL, "ANSWERS": ANSWERS, "TOKENS": TOKENS, "WINDOW": WINDOW}
GROUPS = read_architectures(Path(__file__).with_suffix(".yaml"), globals() | OF_OTHERS)
