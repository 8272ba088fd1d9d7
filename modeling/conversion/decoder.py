"""Conversion of decoders: the heads and codecs of `decoder.yaml`.

Stock Granite and HyperCLOVA X multiply given embeddings, too, where ours multiplies those of its table alone.
"""

from dataclasses import replace
from pathlib import Path

from ...configuration.configuration_pattern import CACHE_LAYER_TYPES, words_of_layers
from .config import Codec, Head, Value, Values, translated
from .tables import read_architectures
from .weights import ROWS

LANGUAGE_MODEL, QA_OUTPUTS = ROWS["language_model"], ROWS["qa_outputs"]
MODEL = Head("Model")
NEXT_TOKEN = Head("ForCausalLM", LANGUAGE_MODEL)
SCORED = Head("ForSequenceClassification", ROWS["score"])
ANSWERS = Head("ForQuestionAnswering", QA_OUTPUTS)
COMMON = (MODEL, NEXT_TOKEN, SCORED)
TOKENS = Head("ForTokenClassification", ROWS["classifier_as_score"])
SCORED_TOKENS = replace(TOKENS, rows=ROWS["score"])
BIASED_NEXT_TOKEN = replace(NEXT_TOKEN, rows=ROWS["biased_language_model"])
LLAMA_ANSWERS = replace(ANSWERS, prefix="transformer.")

# Theirs is read by one head alone, and is 0.1 unless set.
TENTH = Codec("classifier_dropout", read=lambda rate, theirs: 0.1 if rate is None else rate)
# Some of theirs turn a quarter or a half of each head unless told.
PARTIAL = Codec("rope_parameters", write=lambda rope, ours: {"partial_rotary_factor": 1.0, **(rope or {})})


def full_rotation(rope: Values | None, fields: Values) -> Values:
    """Drop the factor of a partial rotation, which Llama would ignore or fail on."""
    return {name: value for name, value in (rope or {}).items() if name != "partial_rotary_factor"}


WHOLE = Codec("rope_parameters", full_rotation, full_rotation)
QUERIES_KEYS_VALUES = ["q_proj", "k_proj", "v_proj"]


def their_biases(biased: Value, theirs: Values) -> list[str]:
    """Name the projections with a bias: of the inputs, and of the output."""
    return QUERIES_KEYS_VALUES * biased + ["o_proj"] * theirs["attention_out_bias"]


def has_bias(biases: Value, name: str) -> bool:
    """Return whether a projection has a bias."""
    return bool(biases) if isinstance(biases, bool | None) else name in biases


BIASES_OF_SEED = Codec("attention_bias", their_biases, lambda biases, _: has_bias(biases, "q_proj"))


def input_biases(name: str) -> Codec:
    """Map a switch of the biases of queries, keys and values; the output has none."""
    return Codec(name, lambda biased, _: QUERIES_KEYS_VALUES if biased else False, lambda biases, _: bool(biases))


# Their names for layers of the patterns they have.
LAYER_TYPES = {word: CACHE_LAYER_TYPES[word] for word in ("full", "sliding")}
PATTERNS = {layer_type: word for word, layer_type in LAYER_TYPES.items()}


def one_word(words: list[str]) -> str | list[str]:
    """Return the word of each layer, one word where all are alike."""
    return words[0] if len(set(words)) == 1 else words


def our_pattern(types: list[str], theirs: Values) -> str | list[str]:
    """Name their layer types in our words; an unknown one stays, for the config to check."""
    return one_word([PATTERNS.get(name, name) for name in types])


def their_layers(pattern: str | list[str], ours: Values) -> list[str]:
    """Name the type of each layer; a pattern they have not becomes another, and is refused for it."""
    return [CACHE_LAYER_TYPES[word] for word in words_of_layers(pattern, ours["num_hidden_layers"])]


LAYER_PATTERN = Codec("layer_types", our_pattern, their_layers)
KINDS = {"full_attention": "global", "sliding_attention": "local"}


def our_kinds(_: Value, theirs: Values) -> str | list[str]:
    """Name the kinds of layers of GPT-Neo in our words."""
    words = {kind: PATTERNS[layer_type] for layer_type, kind in KINDS.items()}
    return one_word([words[kind] for kind in theirs["attention_layers"] if kind in words])


def their_kinds(pattern: str | list[str], ours: Values) -> list[object]:
    """Name the kind of each layer, as a list of kinds that are repeated once."""
    return [[[KINDS[layer]], 1] for layer in their_layers(pattern, ours)]


LAYER_KINDS = Codec("attention_types", our_kinds, their_kinds)


def rotated_layers(flags: list[bool]) -> str | list[str]:
    """Return the position of each layer from whether it rotates."""
    return one_word(["rope" if flag else "none" for flag in flags])


def rotated_windows(types: list[str], theirs: Values) -> str | list[str]:
    """Return the positions of a model that rotates in layers with a window, in all where no layer has one."""
    sliding = [name == "sliding_attention" for name in types]
    return rotated_layers(sliding if theirs["sliding_window"] else [True] * len(types))


def types_of_pattern(_: Value, ours: Values) -> list[str]:
    """Write layer types as the pattern is written, which reading compares."""
    return their_layers(ours["pattern"], ours)


ROTATED_WINDOWS = Codec("layer_types", rotated_windows, types_of_pattern)
# Without a window no layer of Cohere 2 rotates.
ROTATED_WINDOWS_ALONE = Codec(
    "layer_types", lambda types, _: rotated_layers([name == "sliding_attention" for name in types]), types_of_pattern
)


def their_kernels(kernel: str | list[str], ours: Values) -> list[str]:
    """Name the type of each layer by its kernel."""
    words = words_of_layers(kernel, ours["num_hidden_layers"])
    return ["linear_attention" if word == "gated_delta" else "full_attention" for word in words]


KERNELS = Codec(
    "layer_types",
    lambda types, _: one_word(["gated_delta" if name == "linear_attention" else "softmax" for name in types]),
    their_kernels,
)
# Without a rotation where convolutions tell the order.
ROTATED_SOFTMAX = Codec(
    "layer_types",
    lambda types, _: rotated_layers([name == "full_attention" for name in types]),
    lambda _, ours: their_kernels(ours["kernel"], ours),
)
# Theirs is biased where its other projections are.
GATE_OF_HEADS = Codec("attention_bias", lambda biased, _: biased or "unbiased", lambda gate, _: gate is True)
ROTATED_FLAGS = Codec(
    "no_rope_layers",
    lambda flags, theirs: rotated_layers(flags),
    lambda position, ours: [int(word != "none") for word in words_of_layers(position, ours["num_hidden_layers"])],
)


def their_rope(parameters: Values | None, ours: Values) -> Values:
    """Return the parameters of each type of layer, under its name; one set for all of ours is each type's."""
    return {name: parameters.get(word, parameters) for word, name in LAYER_TYPES.items()} if parameters else {}


ROPE_OF_PATTERNS = Codec(
    "rope_parameters",
    lambda parameters, theirs: {PATTERNS[name]: values for name, values in parameters.items()},
    their_rope,
)


def our_turn(size: int, theirs: Values) -> Values:
    """Return the rotation of the first components of a head."""
    part = size / (theirs["n_embd"] // theirs["n_head"])
    return {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": part}


def their_turn(rope: Values | None, ours: Values) -> int:
    """Return the number of components that are rotated."""
    return round(ours["head_dim"] * (rope or {}).get("partial_rotary_factor", 1.0))


ROTARY_DIM = Codec("rotary_dim", our_turn, their_turn)
HEAD_NORM = translated("qk_layernorm", {False: "none", True: "head"})
# OPT has a norm at its end where norms stand before branches, unless it was removed.
FINAL_NORM = Codec(
    "_remove_final_layer_norm",
    read=lambda removed, theirs: theirs["do_layer_norm_before"] and not removed,
    write=lambda normed, ours: ours["norm_position"] == "before" and not normed,
)
# No number depends on it, for distances have no end; the first version of theirs wrote it down.
SEQ_LENGTH = Codec("seq_length", read=lambda length, theirs: length or 2048)
# A window for all layers, where there is one.
WINDOW_OR_NONE = Codec(
    "sliding_window",
    lambda window, theirs: "sliding" if window else "full",
    lambda pattern, ours: ours["sliding_window"] if pattern == "sliding" else None,
)
# Later Mistrals have full attention.
NO_WINDOW = Codec("sliding_window", lambda *_: None, lambda *_: None)
# Theirs counts the tokens on one side where it reads, and both where it is saved.
ONE_SIDE = Codec("local_attention", lambda width, _: width // 2, lambda window, _: 2 * (window or 1))
# Switches of theirs without a field of ours stand beside a field that never changes.
HAS_WINDOW = Codec(
    "use_sliding_window", lambda used, theirs: "rope", lambda word, ours: ours["sliding_window"] is not None
)
SLIDES = Codec("use_sliding_window", lambda *_: "glu", lambda _, ours: "sliding" in ours["pattern"])
OUTPUT_BIAS = Codec("attention_out_bias", lambda *_: "rope", lambda _, ours: has_bias(ours["attention_bias"], "o_proj"))
LENGTH_BEFORE_SCALING = Codec(
    "original_max_position_embeddings",
    lambda *_: "rope",
    lambda _, ours: (ours["rope_parameters"] or {}).get("original_max_position_embeddings", 4096),
)
IS_NEW_FALCON = Codec("new_decoder_architecture", lambda *_: "mlp", lambda *_: True)
# One head of keys and values, or one for each query.
MULTI_QUERY = Codec("multi_query", lambda one, theirs: 1 if one else None, lambda heads, ours: heads == 1)
# Two norms of branches, unless there is said to be one.
NORMS_OF_BRANCHES = Codec(
    "num_ln_in_parallel_attn",
    lambda count, theirs: "shared_norm" if count == 1 else True,
    lambda word, ours: 2 if word is True else 1,
)
# Theirs is a whole number: 0 or nothing.
WHOLE_RATE = Codec("attn_config.attn_pdrop", write=lambda rate, ours: int(rate))


def check_padding(pad: int | None, theirs: Values) -> int | None:
    """Return the padding id; ValueError where stock XGLM blanks the position that has its number."""
    if pad is not None and pad > 1:
        raise ValueError(f"pad_token_id={pad} blanks a position of stock XGLM's table; set it to 0, 1 or None")
    return pad


PADDING = Codec("pad_token_id", check_padding)
ROOT_OF_WIDTH = Codec("hidden_size", lambda width, _: width**0.5, lambda _, ours: ours["hidden_size"])
SCALAR_OF_QUERIES = Codec(
    "query_pre_attn_scalar",
    lambda size, theirs: size**-0.5,
    lambda factor, ours: round((factor or ours["head_dim"] ** -0.5) ** -2),
)
TOLD_MULTIPLIER = Codec("attention_multiplier", write=lambda factor, ours: factor or ours["head_dim"] ** -0.5)
DIVISOR_OF_LOGITS = Codec("logits_scaling", lambda scaling, _: 1 / scaling, lambda scale, _: 1 / scale)
CLASSIFIER_ACT = Codec("classifier_activation", write=lambda act, ours: act or ours["hidden_act"])

GROUPS = read_architectures(Path(__file__).with_suffix(".yaml"), globals())
