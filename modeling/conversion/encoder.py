"""Conversion of text encoders: BERT, RoBERTa, DistilBERT and ELECTRA, as tables.

In training, ours drops out parts of both branches of DistilBERT's layers, where stock DistilBERT spares the attention.
"""

from dataclasses import replace

from ...configuration.configuration_encoder import QkvEncoderConfig
from .config import AFTER_PADDING, BASE, Architecture, Codec, Fields, Head, default, one_spelling, renames

POOLED = {"pooling": "dense"}
UNPOOLED = {"pooling": "first"}
POST_NORM = {"norm_first": False, "embedding_norm": True}
CLASSIFIER = (("classifier", "classifier"),)
QA_OUTPUTS = (("qa_outputs", "qa_outputs"),)

STACK_FIELDS = renames(
    "hidden_size num_hidden_layers num_attention_heads intermediate_size initializer_range hidden_act "
    "norm_eps=layer_norm_eps embedding_dropout=hidden_dropout_prob residual_dropout=hidden_dropout_prob "
    "attention_dropout=attention_probs_dropout_prob"
)
TEXT_FIELDS = renames("vocab_size max_position_embeddings pad_token_id bos_token_id eos_token_id tie_word_embeddings")
# The activation of a head that is GELU, whatever the layers have.
ALWAYS_GELU = Codec(
    "hidden_act",
    read=lambda act, theirs: None if one_spelling(act) == "gelu" else "gelu",
    write=lambda act, ours: ours["hidden_act"],
)
# By default the dropout before a classifier is that of the layers.
CLASSIFIER_DROPOUT = default("classifier_dropout", "hidden_dropout_prob")
LAYER_DROPOUT = {"classifier_dropout": "hidden_dropout_prob"}
BERT_FIELDS: Fields = {
    **STACK_FIELDS,
    **TEXT_FIELDS,
    "classifier_dropout": CLASSIFIER_DROPOUT,
    # Its table of token types cannot be empty.
    "type_vocab_size": Codec("type_vocab_size", write=lambda kinds, ours: max(kinds, 1)),
}
BERT_EMBEDDINGS = (
    "{embed_tokens,position.table,embed_norm}",
    "embeddings.{word_embeddings,position_embeddings,LayerNorm}",
)
BERT_LAYERS = (
    ("layers.*.self_attn.{q,k,v}_proj", "encoder.layer.*.attention.self.{query,key,value}"),
    ("layers.*.self_attn.o_proj", "encoder.layer.*.attention.output.dense"),
    ("layers.*.{self_attn,mlp}_residual.norm", "encoder.layer.*.{attention.output,output}.LayerNorm"),
    ("layers.*.mlp.{up,down}_proj", "encoder.layer.*.{intermediate,output}.dense"),
)
BERT_ROWS = (BERT_EMBEDDINGS, ("embed_token_types", "embeddings.token_type_embeddings"), *BERT_LAYERS)
POOLER = ("pooler.dense", "pooler.dense")
# Where a classifier has two maps, the first is our pooler's.
POOLED_CLASSIFIER = (("model.pooler.dense", "classifier.dense"), ("classifier", "classifier.out_proj"))
MASKED_LM = (
    ("lm_head.{dense,norm}", "cls.predictions.transform.{dense,LayerNorm}"),
    ("lm_head.decoder.weight", "cls.predictions.decoder.weight"),
    ("lm_head.decoder.bias", "cls.predictions.{decoder.bias,bias}", "tie"),
)
ROBERTA_MASKED_LM = (
    ("lm_head.{dense,norm,decoder.weight}", "lm_head.{dense,layer_norm,decoder.weight}"),
    ("lm_head.decoder.bias", "lm_head.{decoder.bias,bias}", "tie"),
)
# The base model with and without the pooler that it can be built with.
UNPOOLED_MODEL = Head("Model", words=UNPOOLED, pooler=False, prefixes=BASE)
MODELS = (Head("Model", words=POOLED, pooler=True, prefixes=BASE), UNPOOLED_MODEL)
TOKENS = Head("ForTokenClassification", CLASSIFIER)
ANSWERS = Head("ForQuestionAnswering", QA_OUTPUTS)
CHOICES = Head("ForMultipleChoice", CLASSIFIER, POOLED)
# Here theirs always takes the dropout of the layers.
CHOICES_OF_LAYERS = replace(CHOICES, fields=LAYER_DROPOUT, inert="classifier_dropout")
PRETRAINING = Head("ForPreTraining", (*MASKED_LM, ("seq_relationship", "cls.seq_relationship")), POOLED)
WORDS = Head("ForMaskedLM", ROBERTA_MASKED_LM, fields={"head_act": ALWAYS_GELU})
TEXTS = Head("ForSequenceClassification", POOLED_CLASSIFIER, POOLED, {"pooling_dropout": CLASSIFIER_DROPOUT})

BERT = Architecture(
    "bert",
    "Bert",
    QkvEncoderConfig,
    BERT_FIELDS,
    {**POST_NORM, **POOLED},
    (*BERT_ROWS, POOLER),
    (
        *(*MODELS, TOKENS, ANSWERS, CHOICES, PRETRAINING, Head("ForMaskedLM", MASKED_LM)),
        Head("ForSequenceClassification", CLASSIFIER, POOLED),
    ),
    prefixes=("model.", "bert."),
    # A cache is for is_decoder=True, which is refused; the others describe the first release.
    inert="use_cache directionality pooler_type pooler_fc_size pooler_num_fc_layers pooler_num_attention_heads "
    "pooler_size_per_head",
    assumed={"position_embedding_type": "absolute"},
)
# The rows of the table below the first position belong to its length.
ROBERTA = replace(
    BERT,
    model_type="roberta",
    name="Roberta",
    fields={
        **BERT_FIELDS,
        "position_offset": AFTER_PADDING,
        "max_position_embeddings": Codec(
            "max_position_embeddings",
            read=lambda rows, theirs: rows - theirs["pad_token_id"] - 1,
            write=lambda length, ours: length + ours["position_offset"],
        ),
    },
    heads=(*MODELS, TOKENS, ANSWERS, CHOICES_OF_LAYERS, WORDS, TEXTS),
    prefixes=("model.", "roberta."),
)
# The same model under another name, so that ours goes back as a RoBERTa.
XLM_ROBERTA = replace(ROBERTA, model_type="xlm-roberta", name="XLMRoberta")

SUMMARY = "summary_type summary_use_proj summary_activation summary_last_dropout"
SUMMARY_ACTIVATION = Codec("summary_activation", write=lambda act, ours: act or "tanh")
ELECTRA_WORDS = (
    ("lm_head.{dense,norm}", "generator_predictions.{dense,LayerNorm}"),
    ("lm_head.decoder", "generator_lm_head"),
)
REPLACED = (("classifier.{dense,score}", "discriminator_predictions.{dense,dense_prediction}"),)
ELECTRA_HEADS = (
    *(UNPOOLED_MODEL, TOKENS, ANSWERS, replace(WORDS, rows=ELECTRA_WORDS)),
    Head("ForReplacedTokenDetection", REPLACED, theirs="ForPreTraining"),
    replace(TEXTS, words={**POOLED, "head_act": "gelu"}),
)
ELECTRA = replace(
    BERT,
    model_type="electra",
    name="Electra",
    fields={**BERT_FIELDS, "embedding_size": "embedding_size"},
    rows=(*BERT.rows, ("embed_projection", "embeddings_project")),
    heads=(
        *(replace(head, inert=SUMMARY) for head in ELECTRA_HEADS),
        replace(
            CHOICES_OF_LAYERS,
            rows=(("model.pooler.dense", "sequence_summary.summary"), *CLASSIFIER),
            fields={"classifier_dropout": "summary_last_dropout", "head_act": SUMMARY_ACTIVATION},
        ),
    ),
    prefixes=("model.", "electra."),
)

PRE_CLASSIFIER = (("model.pooler.dense", "pre_classifier"), *CLASSIFIER)
RELU_POOLED = {**POOLED, "head_act": "relu"}
DISTILBERT = Architecture(
    "distilbert",
    "DistilBert",
    QkvEncoderConfig,
    {
        **TEXT_FIELDS,
        **renames("initializer_range attention_dropout qa_dropout classifier_dropout=seq_classif_dropout"),
        **renames(
            "hidden_size=dim num_hidden_layers=n_layers num_attention_heads=n_heads intermediate_size=hidden_dim"
        ),
        **renames("hidden_act=activation embedding_dropout=dropout residual_dropout=dropout"),
    },
    {**POST_NORM, "norm_eps": 1e-12, "type_vocab_size": 0},
    (
        BERT_EMBEDDINGS,
        ("layers.*.self_attn.{q,k,v,o}_proj", "transformer.layer.*.attention.{q,k,v,out}_lin"),
        ("layers.*.{self_attn,mlp}_residual.norm", "transformer.layer.*.{sa,output}_layer_norm"),
        ("layers.*.mlp.{up,down}_proj", "transformer.layer.*.ffn.{lin1,lin2}"),
    ),
    (
        *(UNPOOLED_MODEL, ANSWERS),
        Head("ForMaskedLM", (("lm_head.{dense,norm,decoder}", "vocab_{transform,layer_norm,projector}"),)),
        Head("ForSequenceClassification", PRE_CLASSIFIER, RELU_POOLED),
        Head("ForMultipleChoice", PRE_CLASSIFIER, RELU_POOLED),
        replace(TOKENS, fields={"classifier_dropout": "dropout"}, inert="seq_classif_dropout"),
    ),
    prefixes=("model.", "distilbert."),
    # It says how the table of positions began.
    inert="sinusoidal_pos_embds",
    assumed={"tie_weights_": True},
)

ENCODERS = (ROBERTA, XLM_ROBERTA, BERT, DISTILBERT, ELECTRA)
