"""Conversion of BERT's and RoBERTa's descendants, as tables: other names, norms and positions.

In training, stock XLM-RoBERTa-XL drops out no part of what its feed-forward networks return, and ours does.
"""

from dataclasses import replace

from .encoder import (
    ANSWERS,
    BERT,
    BERT_FIELDS,
    CHOICES_OF_LAYERS,
    CLASSIFIER,
    LAYER_DROPOUT,
    MODEL,
    POOLED,
    ROBERTA,
    STACK_FIELDS,
    TEXTS,
    TOKENS,
    WORDS,
)
from .weights import ROWS

# RoBERTa under other names.
CAMEMBERT = replace(ROBERTA, model_type="camembert")
DATA2VEC_TEXT = replace(ROBERTA, model_type="data2vec-text", prefix="data2vec_text.")
XLM_ROBERTA_XL = replace(
    ROBERTA,
    model_type="xlm-roberta-xl",
    words=POOLED,
    rows=(*ROWS["bert_without_norms"], *ROWS["xlm_roberta_xl"]),
)
ROBERTA_PRE_LAYER_NORM = replace(
    ROBERTA,
    model_type="roberta-prelayernorm",
    words={**POOLED, "embedding_norm": True},
    rows=(*ROWS["bert_without_norms"], *ROWS["roberta_prelayernorm"]),
    prefix="roberta_prelayernorm.",
)
MEGATRON_BERT = replace(
    BERT,
    model_type="megatron-bert",
    fields={name: theirs for name, theirs in BERT_FIELDS.items() if name != "classifier_dropout"},
    words=POOLED,
    rows=(*ROWS["bert_without_norms"], *ROWS["megatron_bert"]),
    heads=tuple(replace(head, fields=LAYER_DROPOUT) if head.rows == CLASSIFIER else head for head in BERT.heads),
)
# It counts positions from the padding id 1, and has 32 buckets of distances, whatever its config says.
MPNET = replace(
    ROBERTA,
    model_type="mpnet",
    fields={**STACK_FIELDS, "max_position_embeddings": ROBERTA.fields["max_position_embeddings"]},
    words={**ROBERTA.words, "position": "learned_and_t5", "position_offset": 2, "pad_token_id": 1, "type_vocab_size": 0}
    | {"relative_attention_num_buckets": 32},
    rows=ROWS["mpnet"],
    heads=(
        *(MODEL, ANSWERS, WORDS, replace(TOKENS, fields=LAYER_DROPOUT), replace(CHOICES_OF_LAYERS, inert="")),
        replace(TEXTS, fields={**LAYER_DROPOUT, "pooling_dropout": "hidden_dropout_prob"}),
    ),
    prefix="mpnet.",
)

ENCODER_KIN = (CAMEMBERT, DATA2VEC_TEXT, XLM_ROBERTA_XL, ROBERTA_PRE_LAYER_NORM, MEGATRON_BERT, MPNET)
