"""Conversion of text encoders: the heads and codecs of `encoder.yaml`.

Stock ESM passes `inputs_embeds` by its embeddings: it adds no positions and no norm to them, where ours does. Stock
ESM-C has no bias in the last norm and in those of queries and keys, where ours has one of zeros.
"""

from dataclasses import replace
from pathlib import Path

from . import decoder
from .config import SCALED, Codec, Head, Values, default, one_spelling, output_bias
from .tables import read_architectures
from .weights import ROWS

POOLED = {"pooling": "dense"}
UNPOOLED = {"pooling": "first"}
# Fields that heads on every token do not read.
POOLING = "pooling pooling_dropout"
CLASSIFIER = ROWS["classifier"]

# The activation of a head that is GELU, whatever the layers have.
ALWAYS_GELU = Codec(
    "hidden_act",
    read=lambda act, theirs: None if one_spelling(act) == "gelu" else "gelu",
    write=lambda act, ours: ours["hidden_act"],
)
OWN_ACT = Codec("hidden_act", write=lambda act, ours: ours["hidden_act"])
SUMMARY_ACTIVATION = Codec("summary_activation", write=lambda act, ours: act or "tanh")
# By default the dropout before a classifier is that of the layers.
CLASSIFIER_DROPOUT = default("classifier_dropout", "hidden_dropout_prob")
# Their table of token types cannot be empty.
KINDS_OF_TOKENS = Codec("type_vocab_size", write=lambda kinds, ours: max(kinds, 1))
# Weights tell whether the base model has the pooler that it can be built with.
MODEL = Head("Model", words=POOLED, free=POOLING)
UNPOOLED_MODEL = replace(MODEL, words=UNPOOLED)
TOKENS = Head("ForTokenClassification", CLASSIFIER, free=POOLING)
ANSWERS = Head("ForQuestionAnswering", decoder.QA_OUTPUTS, free=POOLING)
CHOICES = Head("ForMultipleChoice", CLASSIFIER)
# Here theirs always takes the dropout of the layers.
CHOICES_OF_LAYERS = replace(CHOICES, fields={"classifier_dropout": "hidden_dropout_prob"}, inert="classifier_dropout")
PRETRAINING = Head("ForPreTraining", (*ROWS["bert_words"], *ROWS["next_sentence"]))
BERT_WORDS = Head("ForMaskedLM", ROWS["bert_words"], free=POOLING)
WORDS = replace(BERT_WORDS, rows=ROWS["roberta_words"], fields={"head_act": ALWAYS_GELU})
BERT_TEXTS = Head("ForSequenceClassification", CLASSIFIER)
TEXTS = replace(
    BERT_TEXTS, rows=ROWS["pooled_classifier"], words=POOLED, fields={"pooling_dropout": CLASSIFIER_DROPOUT}
)

# Of DeBERTa, whose attention reads distances, each with a vector.
RELATIVE = Codec("relative_attention", lambda *_: 0, lambda *_: True)
TERMS = Codec("pos_att_type", lambda terms, _: "|".join(terms or ()), lambda word, _: word.split("|"))
SHARED_KEYS = Codec("share_att_key", lambda shared, _: bool(shared))
NORM_OF_DISTANCES = Codec("norm_rel_ebd", lambda norm, _: norm or "none")
BUCKETS = Codec("position_buckets", lambda count, _: 2 * (count or 0), lambda count, _: count // 2)
FARTHEST = Codec(
    "max_relative_positions",
    lambda most, theirs: most if most > 0 else theirs["max_position_embeddings"],
    lambda most, ours: -1 if most == ours["max_position_embeddings"] else most,
)
LEGACY = Codec("legacy", lambda *_: True, lambda *_: False)
# The rows of a table below the first position belong to its length.
ROWS_AFTER_PADDING = Codec(
    "max_position_embeddings",
    read=lambda rows, theirs: rows - theirs["pad_token_id"] - 1,
    write=lambda length, ours: length + ours["position_offset"],
)
# Theirs, the same in all layers, counts both sides of a token, ours one side and the token. It has two neighbours on
# either side: with one, stock code cuts its chunks to nothing and raises.
WINDOW = Codec(
    "attention_window",
    read=lambda widths, theirs: (widths if isinstance(widths, int) else widths[0]) // 2 + 1,
    write=lambda window, ours: 2 * max((window or 1) - 1, 2),
)
RESCALED, USE_BIAS = replace(SCALED, name="rescale_embeddings"), output_bias("use_bias")
# The sparse attention of BigBird counts the first block 1 + num_random_blocks times in evaluation, and draws blocks by
# numpy in training, which no pattern here does. For short texts stock code turns to full attention itself.
NEVER_SPARSE = Codec("attention_type", lambda kind, theirs: "full", lambda pattern, ours: "original_full")
# A window of theirs counts both sides of a token, ours one side and the token.
BOTH_SIDES = Codec(
    "sliding_window", read=lambda width, theirs: width // 2 + 1, write=lambda window, ours: 2 * ((window or 1) - 1)
)
LOCAL_ATTENTION = replace(BOTH_SIDES, name="local_attention")
READS_BOTH_WAYS = Codec("use_bidirectional_attention", lambda *_: 0, lambda *_: True)
ROOT_OF_DEPTH = Codec(
    "num_hidden_layers", lambda count, _: (36 / count) ** 0.5, lambda _, ours: ours["num_hidden_layers"]
)


def first_row(theirs: Values) -> int:
    """Return the row of the table of positions that the first token has, which rotary positions have none of."""
    return theirs["pad_token_id"] + 1 if theirs["position_embedding_type"] == "absolute" else 0


def our_rope(theta: float, theirs: Values) -> Values | None:
    """Return the parameters of a rotation by this base, None where there is none."""
    return {"rope_type": "default", "rope_theta": theta} if theirs["position_embedding_type"] == "rotary" else None


NORM_BEFORE = Codec("emb_layer_norm_before", read=lambda normed, theirs: bool(normed))
ROPE_THETA = Codec("rope_theta", our_rope, lambda rope, ours: (rope or {}).get("rope_theta", 10000.0))
ROWS_OF_ESM = Codec(
    "max_position_embeddings",
    read=lambda rows, theirs: rows - first_row(theirs),
    write=lambda length, ours: length + (ours["position_offset"] if ours["position"] == "learned" else 0),
)
OFFSET_OF_ESM = Codec(
    "pad_token_id",
    read=lambda pad, theirs: first_row(theirs),
    write=lambda offset, ours: offset - 1 if ours["position"] == "learned" else ours["pad_token_id"],
)

GROUPS = read_architectures(Path(__file__).with_suffix(".yaml"), vars(decoder) | globals())
# ESMFold has it inside.
ESM = GROUPS["rotary"]["esm"]
