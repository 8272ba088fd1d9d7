"""Conversion of speech-to-text models: Whisper and Speech2Text, as tables.

The sinusoids of Whisper's encoder are weights in its checkpoints; here they are the rows of a learned table, whatever
they are. Training moves them, as it does in a stock model that was loaded: only a new one leaves them alone.
"""

from ...configuration.configuration_speech_encoder_decoder import QkvSpeechEncoderDecoderConfig
from .config import AFTER_PADDING, Architecture, Codec, Head, Values, both, renames
from .decoder import LANGUAGE_MODEL, MODEL
from .encoder_decoder import BART_FIELDS, CLAMPED
from .weights import ROWS

# A model with two kinds of input has two lengths.
FIELDS = {
    **BART_FIELDS,
    **renames("encoder.max_position_embeddings=max_source_positions"),
    **renames("decoder.max_position_embeddings=max_target_positions"),
}
MASKING = "apply_spec_augment " + " ".join(
    f"mask_{axis}_{field}" for axis in ("time", "feature") for field in ("prob", "length", "min_masks")
)
# Only pipelines and the CTC head read these.
HEADS_OF_SOUND = "hop_length ctc_zero_infinity vocab_size lm_head_bias classifier_dropout"


def in_encoder(names: str) -> str:
    """Put fields under the name of the encoder."""
    return " ".join(f"encoder.{name}" for name in names.split())


WHISPER = Architecture(
    "whisper",
    QkvSpeechEncoderDecoderConfig,
    {**FIELDS, "encoder.conv_channels": "d_model"},
    {
        **both({"attention_bias": ["q_proj", "v_proj", "o_proj"]}),
        **CLAMPED,
        **{"transcription": "long_form", "encoder.frame_layout": "bins_first", "encoder.frame_padding": "unmasked"},
        **{"encoder.convolution": "plain", "encoder.conv_kernel_sizes": [3, 3], "encoder.conv_strides": [1, 2]},
    },
    (*ROWS["whisper"], *ROWS["bart_layers"], *ROWS["final_norms"]),
    (MODEL, Head("ForSpeechSeq2Seq", (("lm_head.weight", "proj_out.weight"),), theirs="ForConditionalGeneration")),
    prefix="model.",
    free=in_encoder(HEADS_OF_SOUND),
    # Embeddings are never scaled whatever the first says; two belong to a classifier; the others are found in the
    # generation config.
    inert="scale_embedding use_weighted_layer_sum classifier_proj_size suppress_tokens begin_suppress_tokens "
    "forced_decoder_ids",
)


def offset(pad: int, theirs: Values) -> int:
    """Return the first position of sound; stock Speech2Text takes it for padding when the padding id is 0."""
    if not pad:
        raise ValueError(f"pad_token_id={pad} hides every frame of sound from the encoder's positions")
    return AFTER_PADDING.read(pad, theirs)


SPEECH2TEXT = Architecture(
    "speech_to_text",
    QkvSpeechEncoderDecoderConfig,
    {
        **FIELDS,
        "encoder.num_mel_bins": "input_feat_per_channel",
        # Half of the filters gate the other half.
        "encoder.conv_channels": Codec(
            "conv_channels", lambda filters, theirs: filters // 2, lambda half, ours: 2 * half
        ),
        "encoder.conv_strides": Codec(
            "num_conv_layers", read=lambda count, theirs: [2] * count, write=lambda strides, ours: len(strides)
        ),
        "encoder.position_offset": Codec("pad_token_id", read=offset, write=AFTER_PADDING.write),
        "decoder.position_offset": AFTER_PADDING,
    },
    {
        **both({"position": "sinusoidal_t2t"}),
        **CLAMPED,
        **{"encoder.frame_layout": "frames_first", "encoder.frame_padding": "masked", "encoder.convolution": "gated"},
    },
    (*ROWS["speech_to_text"], *ROWS["bart_layers"], *ROWS["final_norms"]),
    (MODEL, Head("ForSpeechSeq2Seq", LANGUAGE_MODEL, theirs="ForConditionalGeneration")),
    prefix="model.",
    free="median_filter_width decoder.max_position_embeddings "
    + in_encoder(f"{HEADS_OF_SOUND} {MASKING} max_position_embeddings"),
)

SPEECH = (WHISPER, SPEECH2TEXT)
