"""Conversion of BERT's and RoBERTa's descendants, as tables: other names, and norms before each branch.

In training, stock XLM-RoBERTa-XL drops out no part of what its feed-forward networks return, and ours does.
"""

from dataclasses import replace

from .encoder import BERT, BERT_FIELDS, BERT_LAYERS, CLASSIFIER, LAYER_DROPOUT, POOLED, POOLER, ROBERTA
from .weights import Rows

# RoBERTa under other names.
CAMEMBERT = replace(ROBERTA, model_type="camembert")
DATA2VEC_TEXT = replace(ROBERTA, model_type="data2vec-text", prefix="data2vec_text.")


def bert_rows(layer_norms: str, **others: str) -> Rows:
    """Return the rows of a BERT, but for norms: those of a layer's two branches, and others by our name."""
    tables = "embeddings.{word_embeddings,position_embeddings,token_type_embeddings}"
    return (
        ("{embed_tokens,position.table,embed_token_types}", tables),
        *(row for row in BERT_LAYERS if "norm" not in row[0]),
        ("layers.*.{self_attn,mlp}_residual.norm", f"encoder.layer.*.{layer_norms}"),
        *others.items(),
        POOLER,
    )


XLM_ROBERTA_XL = replace(
    ROBERTA,
    model_type="xlm-roberta-xl",
    words=POOLED,
    rows=bert_rows("{attention.self_attn_layer_norm,LayerNorm}", norm="encoder.LayerNorm"),
)
ROBERTA_PRE_LAYER_NORM = replace(
    ROBERTA,
    model_type="roberta-prelayernorm",
    words={**POOLED, "embedding_norm": True},
    rows=bert_rows("{attention,intermediate}.LayerNorm", embed_norm="embeddings.LayerNorm", norm="LayerNorm"),
    prefix="roberta_prelayernorm.",
)
MEGATRON_BERT = replace(
    BERT,
    model_type="megatron-bert",
    fields={name: theirs for name, theirs in BERT_FIELDS.items() if name != "classifier_dropout"},
    words=POOLED,
    rows=bert_rows("{attention.ln,ln}", norm="encoder.ln"),
    heads=tuple(replace(head, fields=LAYER_DROPOUT) if head.rows == CLASSIFIER else head for head in BERT.heads),
)

ENCODER_KIN = (CAMEMBERT, DATA2VEC_TEXT, XLM_ROBERTA_XL, ROBERTA_PRE_LAYER_NORM, MEGATRON_BERT)
