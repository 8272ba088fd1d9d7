"""Official models that hear, every class of each at a tiny size."""

from families.base import END, Family, recognition, recognition_labels, window_labels, window_words

SIZES = {
    **{"d_model": 32, "encoder_layers": 3, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 40},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 2, "max_target_positions": 24, "init_std": 0.1},
    **{"dropout": 0.2, "attention_dropout": 0.3, "activation_dropout": 0.15},
}

WHISPER = Family(
    "whisper",
    "Whisper",
    {"Model": window_words, "ForConditionalGeneration": window_labels},
    {**SIZES, "num_mel_bins": 10, "max_source_positions": 11, "decoder_start_token_id": END},
    {"encoder.frame_padding": "masked"},
    sides=("none", "right"),
    translates=True,
    padding_idx=True,
    frozen="encoder.embed_positions.weight",
)
SPEECH2TEXT = Family(
    "speech_to_text",
    "Speech2Text",
    {"Model": recognition, "ForConditionalGeneration": recognition_labels},
    {**SIZES, "input_feat_per_channel": 10, "conv_channels": 28, "decoder_start_token_id": END},
    {"encoder.frame_padding": "zeroed"},
    sides=("none", "right"),
    translates=True,
    padding_idx=True,
)

FAMILIES = [WHISPER, SPEECH2TEXT]
VARIANTS = [
    WHISPER.variant("Model", "relu", {"encoder.hidden_act": "gelu"}, activation_function="relu"),
    SPEECH2TEXT.variant(
        "ForConditionalGeneration",
        "three convolutions",
        **{"num_conv_layers": 3, "conv_kernel_sizes": (5, 3, 7), "scale_embedding": False},
    ),
]
