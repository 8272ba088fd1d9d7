"""Conversion of encoder-decoders: BART, Marian, Pegasus and their multilingual kin, as tables."""

from dataclasses import replace

from ...configuration.configuration_encoder_decoder import QkvEncoderDecoderConfig
from ..modeling_encoder_decoder import QkvEncoderDecoderForConditionalGeneration, QkvEncoderDecoderModel
from ..modeling_encoder_decoder_heads import (
    QkvEncoderDecoderForQuestionAnswering,
    QkvEncoderDecoderForSequenceClassification,
)
from .config import AFTER_PADDING, BASE, Architecture, Codec, Fields, Head, activation, both, same
from .weights import Row

LANGUAGE_MODEL = (("lm_head.weight", "lm_head.weight"),)
# A buffer of theirs, and zero in most checkpoints; only where it is not, our head has a bias.
LOGITS_BIAS = ("lm_head.bias", "final_logits_bias", "lead", "optional")
CLASSIFIER = (("{dense,classifier}", "classification_head.{dense,out_proj}"),)


def heads(name: str, language_model: str, *rows: Row) -> tuple[Head, ...]:
    """Return the model without and with a language model head."""
    scores = f"{name}{language_model}"
    return (
        Head(QkvEncoderDecoderModel, f"{name}Model", prefixes=BASE),
        Head(QkvEncoderDecoderForConditionalGeneration, scores, (*LANGUAGE_MODEL, *rows)),
    )


def text_heads(name: str, classified: str) -> tuple[Head, ...]:
    """Return the classes that read a text with both stacks; `classified` is listed before the classifier's base."""
    prefixes = ("model.", classified)
    return (
        Head(
            QkvEncoderDecoderForSequenceClassification,
            f"{name}ForSequenceClassification",
            CLASSIFIER,
            prefixes=prefixes,
        ),
        Head(
            QkvEncoderDecoderForQuestionAnswering,
            f"{name}ForQuestionAnswering",
            (("qa_outputs", "qa_outputs"),),
        ),
    )


# What encoder and decoder say each for itself.
SIDES: Fields = {
    **{f"{side}.num_hidden_layers": f"{side}_layers" for side in ("encoder", "decoder")},
    **{f"{side}.num_attention_heads": f"{side}_attention_heads" for side in ("encoder", "decoder")},
    **{f"{side}.intermediate_size": f"{side}_ffn_dim" for side in ("encoder", "decoder")},
    **{f"{side}.layerdrop": f"{side}_layerdrop" for side in ("encoder", "decoder")},
    "initializer_range": "init_std",
}
BART_FIELDS: Fields = {
    **SIDES,
    **same("use_cache pad_token_id bos_token_id eos_token_id decoder_start_token_id tie_word_embeddings"),
    **both(same("max_position_embeddings attention_dropout activation_dropout scale_embedding")),
    **both({"hidden_size": "d_model", "hidden_act": activation("activation_function")}),
    **both({"embedding_dropout": "dropout", "residual_dropout": "dropout"}),
}


def bart_stack(side: str) -> tuple[Row, ...]:
    """Return the rows that encoder and decoder of BART and its kin share."""
    layer = f"{side}.layers.*"
    return (
        (f"{layer}.self_attn.{{q,k,v,o}}_proj", f"{layer}.self_attn.{{q_proj,k_proj,v_proj,out_proj}}"),
        (f"{layer}.self_attn_residual.norm", f"{layer}.self_attn_layer_norm"),
        (f"{layer}.cross_attn.{{q,k,v,o}}_proj", f"{layer}.encoder_attn.{{q_proj,k_proj,v_proj,out_proj}}"),
        (f"{layer}.cross_attn_residual.norm", f"{layer}.encoder_attn_layer_norm"),
        (f"{layer}.mlp.{{up,down}}_proj", f"{layer}.{{fc1,fc2}}"),
        (f"{layer}.mlp_residual.norm", f"{layer}.final_layer_norm"),
    )


STACKS = (*bart_stack("encoder"), *bart_stack("decoder"))
ONE_TABLE = tuple((f"{side}.embed_tokens", f"{{{side}.embed_tokens,shared}}", "tie") for side in ("encoder", "decoder"))
TWO_TABLES = (("{encoder,decoder}.embed_tokens", "{encoder,decoder}.embed_tokens"),)
SINUSOIDS = tuple(("", f"{side}.embed_positions.weight", "sinusoids") for side in ("encoder", "decoder"))
LEARNED = (
    ("{encoder,decoder}.embed_norm", "{encoder,decoder}.layernorm_embedding"),
    ("{encoder,decoder}.position.table", "{encoder,decoder}.embed_positions"),
)
FINAL_NORMS = (("{encoder,decoder}.norm", "{encoder,decoder}.layer_norm"),)
SHARED_FIELDS: Fields = {**BART_FIELDS, **both(same("vocab_size")), "share_embeddings": "tie_word_embeddings"}

BART = Architecture(
    "bart",
    QkvEncoderDecoderConfig,
    {**SHARED_FIELDS, "classifier_dropout": "classifier_dropout"},
    both({"norm_first": False, "embedding_norm": True, "position_offset": 2}),
    (*STACKS, *ONE_TABLE, *LEARNED),
    (*heads("Bart", "ForConditionalGeneration", LOGITS_BIAS), *text_heads("Bart", "model.")),
    prefixes=("model.", "model."),
    free=frozenset({"decoder.lm_head_bias"}),
    # The first lives in the generation config, the rest is history.
    inert=frozenset(
        "forced_eos_token_id classif_dropout extra_pos_embeddings force_bos_token_to_be_generated "
        "replacing_rate".split()
    ),
    assumed={
        "add_bias_logits": False,
        "add_final_layer_norm": False,
        "do_blenderbot_90_layernorm": False,
        "normalize_before": False,
        "normalize_embedding": True,
        "static_position_embeddings": False,
    },
)
PRE_NORM = {"normalize_before": True, "add_final_layer_norm": True}
MBART = replace(
    BART,
    model_type="mbart",
    fields={
        **BART.fields,
        # Unless told, generation starts as a text does.
        "decoder_start_token_id": Codec(
            "decoder_start_token_id", lambda start, theirs: theirs["bos_token_id"] if start is None else start
        ),
    },
    words={**both({"embedding_norm": True, "position_offset": 2}), "start_with_last_token": True},
    rows=(*BART.rows, *FINAL_NORMS),
    heads=(*heads("MBart", "ForConditionalGeneration", LOGITS_BIAS), *text_heads("MBart", "model.")),
    assumed={**BART.assumed, **PRE_NORM},
)
# From here on no class has the head in which this dropout would act.
HEADLESS = BART.inert | {"classifier_dropout"}
MARIAN = replace(
    BART,
    model_type="marian",
    fields={
        **BART_FIELDS,
        "encoder.vocab_size": "vocab_size",
        "decoder.vocab_size": "decoder_vocab_size",
        "share_embeddings": "share_encoder_decoder_embeddings",
    },
    words={**both({"norm_first": False, "position": "sinusoidal_concat"}), "share_embeddings": True},
    rows=(*STACKS, *ONE_TABLE, *SINUSOIDS),
    heads=heads("Marian", "MTModel", LOGITS_BIAS),
    inert=HEADLESS,
    assumed={**BART.assumed, "normalize_embedding": False, "static_position_embeddings": True},
)
MARIAN_TWO_VOCABULARIES = replace(
    MARIAN,
    words={**MARIAN.words, "share_embeddings": False},
    rows=(*STACKS, *TWO_TABLES, *SINUSOIDS),
)
PEGASUS = replace(
    BART,
    model_type="pegasus",
    fields=SHARED_FIELDS,
    words=both({"position": "sinusoidal_concat"}),
    rows=(*STACKS, *ONE_TABLE, *SINUSOIDS, *FINAL_NORMS),
    heads=heads("Pegasus", "ForConditionalGeneration", LOGITS_BIAS),
    inert=HEADLESS,
    assumed={**MARIAN.assumed, **PRE_NORM},
)
# Its table of positions is no part of a checkpoint. NLLB is another vocabulary.
M2M100 = replace(
    BART,
    model_type="m2m_100",
    fields={
        **SHARED_FIELDS,
        **both({"position_offset": AFTER_PADDING}),
    },
    words=both({"position": "sinusoidal_t2t"}),
    rows=(*STACKS, *ONE_TABLE, *FINAL_NORMS),
    heads=heads("M2M100", "ForConditionalGeneration"),
    free=frozenset(),
    inert=frozenset(),
    assumed={},
)

ENCODER_DECODERS = (BART, MBART, MARIAN, MARIAN_TWO_VOCABULARIES, PEGASUS, M2M100)
