"""Conversion of speech-to-text models: Whisper and Speech2Text, as tables.

The sinusoids of Whisper's encoder are weights in its checkpoints; here they are the rows of a learned table, whatever
they are. Training moves them, as it does in a stock model that was loaded: only a new one leaves them alone.
"""

from ...configuration.configuration_speech_encoder_decoder import QkvSpeechEncoderDecoderConfig
from ..modeling_speech_encoder_decoder import QkvSpeechEncoderDecoderForSpeechSeq2Seq, QkvSpeechEncoderDecoderModel
from .config import AFTER_PADDING, BASE, Architecture, Codec, Fields, Head, Values, both, same
from .encoder_decoder import BART_FIELDS, FINAL_NORMS, LANGUAGE_MODEL, STACKS
from .weights import Row

# Fields of BART's table that a model with two kinds of input has elsewhere.
APART = {f"{side}.{name}" for side in ("encoder", "decoder") for name in ("max_position_embeddings", "scale_embedding")}
FIELDS: Fields = {
    **{ours: theirs for ours, theirs in BART_FIELDS.items() if ours not in APART},
    "decoder.vocab_size": "vocab_size",
    "encoder.max_position_embeddings": "max_source_positions",
    "decoder.max_position_embeddings": "max_target_positions",
}
MASKING = (
    "apply_spec_augment mask_time_prob mask_time_length mask_time_min_masks mask_feature_prob mask_feature_length "
    "mask_feature_min_masks"
).split()

# What only pipelines and the CTC head read.
HEADS_OF_SOUND = frozenset(
    f"encoder.{name}" for name in "hop_length ctc_zero_infinity vocab_size lm_head_bias classifier_dropout".split()
)


def keyless(row: Row) -> tuple[Row, ...]:
    """Split a row of projections in two, so that the keys may lack a bias."""
    ours, theirs, *changes = row
    if "{q,k,v,o}" not in ours:
        return (row,)
    others = (ours.replace("{q,k,v,o}", "{q,v,o}"), theirs.replace("q_proj,k_proj", "q_proj"), *changes)
    return others, (ours.replace("{q,k,v,o}_proj", "k_proj"), theirs.partition("{")[0] + "k_proj", *changes)


WHISPER = Architecture(
    "whisper",
    QkvSpeechEncoderDecoderConfig,
    {
        **FIELDS,
        **same("median_filter_width"),
        **{f"encoder.{name}": name for name in (*MASKING, "num_mel_bins")},
        "encoder.conv_channels": "d_model",
    },
    {
        **both({"attention_bias": ["q_proj", "v_proj", "o_proj"]}),
        "transcription": "long_form",
        "encoder.frame_layout": "bins_first",
        "encoder.frame_padding": "unmasked",
        "encoder.convolution": "plain",
        "encoder.conv_kernel_sizes": [3, 3],
        "encoder.conv_strides": [1, 2],
    },
    (
        ("encoder.embed_tokens.convolutions.{0,1}", "encoder.{conv1,conv2}"),
        ("encoder.position.table", "encoder.embed_positions"),
        ("decoder.position.table", "decoder.embed_positions"),
        ("decoder.embed_tokens", "decoder.embed_tokens"),
        *(split for row in STACKS for split in keyless(row)),
        *FINAL_NORMS,
    ),
    (
        Head(QkvSpeechEncoderDecoderModel, "WhisperModel", prefixes=BASE),
        Head(
            QkvSpeechEncoderDecoderForSpeechSeq2Seq,
            "WhisperForConditionalGeneration",
            (("lm_head.weight", "proj_out.weight"),),
        ),
    ),
    prefixes=("model.", "model."),
    free=HEADS_OF_SOUND,
    # Embeddings are never scaled whatever the first says; two belong to a classifier; the others are found in the
    # generation config.
    inert=frozenset(
        "scale_embedding use_weighted_layer_sum classifier_proj_size suppress_tokens begin_suppress_tokens "
        "forced_decoder_ids".split()
    ),
)


def offset(pad: int, theirs: Values) -> int:
    """Return the first position of sound; stock Speech2Text takes its own for padding when the padding id is 0."""
    if not pad:
        raise ValueError(f"pad_token_id={pad} hides every frame of sound from the encoder's positions")
    return AFTER_PADDING.read(pad, theirs)


def inner_channels(channels: int, theirs: Values) -> int:
    """Return the inner filters; half of them decide what the other half lets through."""
    if channels % 2:
        raise ValueError(f"conv_channels={channels} cannot be halved by a gate")
    return channels // 2


SPEECH2TEXT = Architecture(
    "speech_to_text",
    QkvSpeechEncoderDecoderConfig,
    {
        **FIELDS,
        **both({"scale_embedding": "scale_embedding"}),
        "encoder.num_mel_bins": "input_feat_per_channel",
        "encoder.conv_channels": Codec("conv_channels", read=inner_channels, write=lambda channels, ours: 2 * channels),
        "encoder.conv_kernel_sizes": Codec("conv_kernel_sizes", read=lambda sizes, theirs: list(sizes)),
        "encoder.conv_strides": Codec(
            "num_conv_layers",
            read=lambda count, theirs: [2] * count,
            write=lambda strides, ours: len(strides),
        ),
        "encoder.position_offset": Codec("pad_token_id", read=offset, write=AFTER_PADDING.write),
        "decoder.position_offset": AFTER_PADDING,
    },
    {
        **both({"position": "sinusoidal_t2t"}),
        "encoder.frame_layout": "frames_first",
        "encoder.frame_padding": "masked",
        "encoder.convolution": "gated",
    },
    (
        ("encoder.embed_tokens.convolutions.*", "encoder.conv.conv_layers.*"),
        ("decoder.embed_tokens", "decoder.embed_tokens"),
        *STACKS,
        *FINAL_NORMS,
    ),
    (
        Head(QkvSpeechEncoderDecoderModel, "Speech2TextModel", prefixes=BASE),
        Head(QkvSpeechEncoderDecoderForSpeechSeq2Seq, "Speech2TextForConditionalGeneration", LANGUAGE_MODEL),
    ),
    prefixes=("model.", "model."),
    free=frozenset(
        {*HEADS_OF_SOUND, *(f"encoder.{name}" for name in MASKING)}
        | {"median_filter_width", *both({"max_position_embeddings": ""})}
    ),
)

SPEECH = (WHISPER, SPEECH2TEXT)
