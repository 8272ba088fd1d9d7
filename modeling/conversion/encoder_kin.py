"""Conversion of BERT's and RoBERTa's descendants, as tables: other names, and norms before each branch.

In training, stock XLM-RoBERTa-XL drops out no part of what its feed-forward networks return, and ours does.
"""

from dataclasses import replace

from .encoder import BERT, BERT_FIELDS, CLASSIFIER, LAYER_DROPOUT, POOLED, ROBERTA
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

ENCODER_KIN = (CAMEMBERT, DATA2VEC_TEXT, XLM_ROBERTA_XL, ROBERTA_PRE_LAYER_NORM, MEGATRON_BERT)
