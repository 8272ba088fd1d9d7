"""Conversion of encoder-decoders: BART, Marian, Pegasus and their multilingual kin, as tables."""

from dataclasses import replace

from ...configuration.configuration_encoder_decoder import QkvEncoderDecoderConfig
from .config import AFTER_PADDING, BASE, Architecture, Head, both, default, renames
from .decoder import LANGUAGE_MODEL, QA_OUTPUTS

# A buffer of theirs, and zero in most checkpoints; only where it is not, our head has a bias.
LOGITS_BIAS = ("lm_head.bias", "final_logits_bias", "lead", "optional")
MODEL = Head("Model", prefixes=BASE)
SCORED = Head("ForConditionalGeneration", LANGUAGE_MODEL)
BIASED = Head("ForConditionalGeneration", (*LANGUAGE_MODEL, LOGITS_BIAS))
TEXTS = Head("ForSequenceClassification", (("{dense,classifier}", "classification_head.{dense,out_proj}"),))
ANSWERS = Head("ForQuestionAnswering", QA_OUTPUTS)

# Fields of which encoder and decoder have one each.
SIDES = {
    **both(renames("num_hidden_layers=*_layers num_attention_heads=*_attention_heads")),
    **both(renames("intermediate_size=*_ffn_dim layerdrop=*_layerdrop")),
    "initializer_range": "init_std",
}
BART_FIELDS = {
    **SIDES,
    **renames("use_cache pad_token_id bos_token_id eos_token_id decoder_start_token_id tie_word_embeddings"),
    **both(renames("max_position_embeddings attention_dropout activation_dropout scale_embedding hidden_size=d_model")),
    **both(renames("hidden_act=activation_function embedding_dropout=dropout residual_dropout=dropout")),
}
SHARED_FIELDS = {**BART_FIELDS, **both({"vocab_size": "vocab_size"}), "share_embeddings": "tie_word_embeddings"}

STACKS = (
    ("**.layers.*.self_attn.{q,k,v,o}_proj", "**.layers.*.self_attn.{q,k,v,out}_proj"),
    ("**.layers.*.cross_attn.{q,k,v,o}_proj", "**.layers.*.encoder_attn.{q,k,v,out}_proj"),
    ("**.layers.*.{self_attn,cross_attn,mlp}_residual.norm", "**.layers.*.{self_attn,encoder_attn,final}_layer_norm"),
    ("**.layers.*.mlp.{up,down}_proj", "**.layers.*.{fc1,fc2}"),
)
ONE_TABLE = tuple((f"{side}.embed_tokens", f"{{{side}.embed_tokens,shared}}", "tie") for side in ("encoder", "decoder"))
TWO_TABLES = (("{encoder,decoder}.embed_tokens", "{encoder,decoder}.embed_tokens"),)
SINUSOIDS = tuple(("", f"{side}.embed_positions.weight", "sinusoids") for side in ("encoder", "decoder"))
LEARNED = (
    ("{encoder,decoder}.embed_norm", "{encoder,decoder}.layernorm_embedding"),
    ("{encoder,decoder}.position.table", "{encoder,decoder}.embed_positions"),
)
FINAL_NORMS = (("{encoder,decoder}.norm", "{encoder,decoder}.layer_norm"),)

BART = Architecture(
    "bart",
    "Bart",
    QkvEncoderDecoderConfig,
    {**SHARED_FIELDS, "classifier_dropout": "classifier_dropout"},
    both({"norm_first": False, "embedding_norm": True, "position_offset": 2}),
    (*STACKS, *ONE_TABLE, *LEARNED),
    (MODEL, BIASED, replace(TEXTS, prefixes=("model.", "model.")), ANSWERS),
    prefixes=("model.", "model."),
    free="decoder.lm_head_bias",
    # The first lives in the generation config, the rest is history.
    inert="forced_eos_token_id classif_dropout extra_pos_embeddings force_bos_token_to_be_generated replacing_rate",
    assumed={
        **dict.fromkeys(("add_bias_logits", "add_final_layer_norm", "do_blenderbot_90_layernorm"), False),
        **{"normalize_before": False, "normalize_embedding": True, "static_position_embeddings": False},
    },
)
PRE_NORM = {"normalize_before": True, "add_final_layer_norm": True}
# Unless told, generation starts as a text does.
MBART = replace(
    BART,
    model_type="mbart",
    name="MBart",
    fields={**BART.fields, "decoder_start_token_id": default("decoder_start_token_id", "bos_token_id")},
    words={**both({"embedding_norm": True, "position_offset": 2}), "start_with_last_token": True},
    rows=(*BART.rows, *FINAL_NORMS),
    assumed={**BART.assumed, **PRE_NORM},
)
# From here on no class has the head in which this dropout would act.
HEADLESS = f"{BART.inert} classifier_dropout"
MARIAN = replace(
    BART,
    model_type="marian",
    name="Marian",
    fields={
        **BART_FIELDS,
        **renames("encoder.vocab_size=vocab_size decoder.vocab_size=decoder_vocab_size"),
        "share_embeddings": "share_encoder_decoder_embeddings",
    },
    words={**both({"norm_first": False, "position": "sinusoidal_concat"}), "share_embeddings": True},
    rows=(*STACKS, *ONE_TABLE, *SINUSOIDS),
    heads=(MODEL, replace(BIASED, theirs="MTModel")),
    inert=HEADLESS,
    assumed={**BART.assumed, "normalize_embedding": False, "static_position_embeddings": True},
)
MARIAN_TWO_VOCABULARIES = replace(
    MARIAN, words={**MARIAN.words, "share_embeddings": False}, rows=(*STACKS, *TWO_TABLES, *SINUSOIDS)
)
PEGASUS = replace(
    MARIAN,
    model_type="pegasus",
    name="Pegasus",
    fields=SHARED_FIELDS,
    words=both({"position": "sinusoidal_concat"}),
    rows=(*MARIAN.rows, *FINAL_NORMS),
    heads=(MODEL, BIASED),
    assumed={**MARIAN.assumed, **PRE_NORM},
)
# Its table of positions is no part of a checkpoint. NLLB is another vocabulary.
M2M100 = replace(
    BART,
    model_type="m2m_100",
    name="M2M100",
    fields={**SHARED_FIELDS, **both({"position_offset": AFTER_PADDING})},
    words=both({"position": "sinusoidal_t2t"}),
    rows=(*STACKS, *ONE_TABLE, *FINAL_NORMS),
    heads=(MODEL, SCORED),
    free="",
    inert="",
    assumed={},
)

ENCODER_DECODERS = (BART, MBART, MARIAN, MARIAN_TWO_VOCABULARIES, PEGASUS, M2M100)
