"""Checks of tokens, embeddings, masks, caches and labels: of values only in eager mode on the CPU, where they are free.

Shapes: B batch, T queries, S keys, D hidden_size, V classes or vocabulary.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache, EncoderDecoderCache

from ...configuration.axes import TABLE_POSITIONS
from ...configuration.configuration_stack import StackConfig
from .pipeline_stage import is_elsewhere


def can_read_values(tensor: Tensor) -> bool:
    """Return True where values can be read at no cost: an accelerator would stall, a compiler would break its graph."""
    real = type(tensor) in (Tensor, nn.Parameter) and tensor.device.type == "cpu"
    return real and not torch.compiler.is_compiling()


def check_family(model: PreTrainedModel, config: PreTrainedConfig) -> None:
    """Raise ValueError where a model is built from the config of another family."""
    needed = getattr(model, "config_class", None)
    if needed and needed.model_type and getattr(config, "model_type", None) != needed.model_type:
        name = type(model).__name__
        raise ValueError(f"{name} needs a config of type {needed.__name__}, got {type(config).__name__}")


def check_range(name: str, ids: Tensor, count: int, kind: str, mend: str) -> None:
    """Raise when an id is none of 0 to `count` - 1."""
    if not ids.numel() or not can_read_values(ids):
        return
    low, high = (int(edge) for edge in ids.aminmax())
    if low < 0 or high >= count:
        wrong = low if low < 0 else high
        raise ValueError(f"{name} contain {wrong}, outside the {kind} of {count} (0 to {count - 1}); {mend}")


def check_shape(name: str, tensor: Tensor, expected: Sequence[int], kind: str) -> None:
    """Check that there is one value for each of a kind."""
    if tuple(tensor.shape) != tuple(expected):
        raise ValueError(f"{name} of shape {tuple(tensor.shape)} does not fit {kind}, {tuple(expected)}")


def check_input_ids(input_ids: Tensor, vocab_size: int) -> None:
    """Check token ids: whole numbers (B, T) below the vocabulary's size; others may be embedded by hand."""
    if not isinstance(input_ids, Tensor) or input_ids.ndim not in (1, 2, 3) or input_ids.is_floating_point():
        form = f"{tuple(input_ids.shape)}, {input_ids.dtype}" if isinstance(input_ids, Tensor) else type(input_ids)
        raise ValueError(f"input_ids ({form}) are not whole numbers (batch, length); tokenize with return_tensors='pt'")
    check_range("input_ids", input_ids, vocab_size, "vocabulary", "use its tokenizer or resize_token_embeddings")


def count_choices(input_ids: Tensor | None, inputs_embeds: Tensor | None) -> int:
    """Return the number of choices of (B, choices, T) or (B, choices, T, D)."""
    tokens, dimensions = (input_ids, 3) if input_ids is not None else (inputs_embeds, 4)
    if tokens is None or tokens.ndim != dimensions:
        shape = None if tokens is None else tuple(tokens.shape)
        raise ValueError(f"inputs of shape {shape} are not (batch, choices, length); stack each question's choices")
    return tokens.shape[1]


def check_input_kind(model: PreTrainedModel, others: dict[str, object]) -> None:
    """Raise ValueError where a model gets an input that only one of another kind reads."""
    for name in ("input_ids", "pixel_values", "input_features"):
        if name != model.main_input_name and others.get(name) is not None:
            raise ValueError(f"{name} given to {type(model).__name__}, which reads {model.main_input_name}")


def check_token_types(token_type_ids: Tensor, hidden: Tensor, kinds: int) -> None:
    """Check one type for each token (B, T); a model without types accepts the zeros that tokenizers return."""
    check_shape("token_type_ids", token_type_ids, hidden.shape[:2], "tokens")
    check_range("token_type_ids", token_type_ids, max(kinds, 1), "types", "set type_vocab_size or leave them out")


def check_stack_inputs(
    first: nn.Module, config: StackConfig, hidden: Tensor, past: Cache | None, kwargs: Mapping[str, object]
) -> None:
    """Check embedding, cache and memory shapes, before the first layer."""
    memory = kwargs.get("encoder_hidden_states")
    check_embeddings(hidden, config.hidden_size if is_elsewhere(first) else config.embedding_width)
    if past is not None:
        check_cache(past, config, hidden)
    reads_memory = getattr(config, "cross_attention", False)
    if reads_memory != (memory is not None):
        got = "None" if memory is None else type(memory).__name__
        raise ValueError(f"cross_attention={reads_memory} does not fit encoder_hidden_states={got}; change one of them")
    if isinstance(memory, Tensor):
        check_memory(memory, hidden, config.hidden_size, "hidden_size")


def check_embeddings(hidden: Tensor, width: int) -> None:
    """Check that embeddings are (B, T, D) with at least one token."""
    if hidden.ndim != 3 or hidden.shape[-1] != width or hidden.shape[1] == 0:
        raise ValueError(
            f"embeddings of shape {tuple(hidden.shape)} are not (batch, length >= 1, hidden_size={width}); give "
            f"input_ids (batch, length), not {tuple(hidden.shape[:-1])}, or inputs_embeds"
        )


def check_memory(memory: Tensor | None, hidden: Tensor, width: int, field: str) -> Tensor:
    """Return an encoder's output (B, S, D), after checking it; a field of the config tells its width."""
    if memory is None or memory.ndim != 3 or (memory.shape[0], memory.shape[2]) != (hidden.shape[0], width):
        shape = None if memory is None else tuple(memory.shape)
        wanted = f"(batch={hidden.shape[0]}, length, {field}={width})"
        raise ValueError(f"encoder_hidden_states of shape {shape} are not {wanted}")
    return memory


def check_memory_mask(mask: Tensor | None, memory: Tensor) -> None:
    """Check the marks of an encoder's real tokens (B, S)."""
    if mask is not None:
        check_shape("encoder_attention_mask", mask, memory.shape[:2], "the tokens of the encoder")
        check_marks("encoder_attention_mask", mask)


def check_source_mask(mask: Tensor | None) -> None:
    """Raise ValueError on a mask of pairs of source tokens, which tells nothing of what the target reads."""
    if isinstance(mask, Tensor) and mask.ndim == 4:
        raise ValueError(
            f"attention_mask of shape {tuple(mask.shape)} is one of pairs, others than those of cross-attention; run "
            "the encoder alone, and give encoder_outputs with a mask (batch, 1, targets, sources) or (batch, sources)"
        )


def check_pairs(images: Tensor, texts: Tensor) -> None:
    """Check that images and texts (B, D) come in pairs, as many of the one as of the other."""
    if images.shape != texts.shape or not len(images):
        raise ValueError(f"{len(images)} images and {len(texts)} texts are no pairs; give pairs, or no return_loss")


def check_end_tokens(ends: Tensor, end: object, mend: str) -> None:
    """Check that each text has the end at which it is read: booleans (B, T)."""
    if can_read_values(ends) and not bool(ends.any(-1).all()):
        row = int(ends.any(-1).int().argmin())
        raise ValueError(f"row {row} of input_ids has no eos_token_id={end}{mend}")


def check_labels(scores: tuple[int, ...], labels: Tensor, ignored: int) -> None:
    """Check labels: a class for each row of scores of shape (..., V); dimensions of size 1 may be missing."""
    if labels.is_floating_point() or [n for n in labels.shape if n != 1] != [n for n in scores[:-1] if n != 1]:
        got = f"labels of shape {tuple(labels.shape)} and type {labels.dtype} do not fit scores {tuple(scores)}"
        raise ValueError(f"{got}; give one class number for each of {tuple(scores[:-1])}")
    due = labels.masked_fill(labels == ignored, 0)
    check_range("labels", due, scores[-1], "classes", f"set num_labels, or {ignored} where none is due")


def check_padding_mask(attention_mask: Tensor, hidden: Tensor, past: int | Tensor, length: int) -> None:
    """Check the marks of real tokens (B, S), cached ones too; a static cache does not tell its length."""
    batch, marked = attention_mask.shape if attention_mask.ndim == 2 else (-1, -1)
    if batch != hidden.shape[0] or (isinstance(past, int) and marked != past + length):
        seen = f"{past} cached + {length}" if isinstance(past, int) and past else f"{length}"
        raise ValueError(
            f"attention_mask of shape {tuple(attention_mask.shape)} does not fit a batch of {hidden.shape[0]} rows of "
            f"{seen} tokens; give one value for each token, or a (batch, 1, queries, keys) mask"
        )
    check_marks("attention_mask", attention_mask)


def check_marks(name: str, mask: Tensor | None) -> None:
    """Check that marks of real tokens are 0 and 1: sums of others would give other positions and other means."""
    if mask is None or mask.dtype == torch.bool or not mask.numel() or not can_read_values(mask):
        return
    low, high = mask.aminmax()
    if low < 0 or high > 1 or (mask.is_floating_point() and not ((mask == 0) | (mask == 1)).all()):
        got = f"{name} holds numbers from {low.item()} to {high.item()}"
        raise ValueError(f"{got}; mark real tokens with 1, padding with 0, and packed documents by position_ids")


def check_position_ids(hidden: Tensor, position_ids: Tensor | None) -> None:
    """Check that there are position ids for each row of tokens, or one row for all."""
    if position_ids is not None and position_ids.shape != (1, hidden.shape[1]):
        check_shape("position_ids", position_ids, hidden.shape[:2], "tokens")


def check_finished_mask(name: str, mask: Tensor | None, sizes: tuple[int, ...]) -> Tensor:
    """Return a mask of pairs (B or 1, any, T, S), after checking it; `sizes` are B, T and S."""
    batch, queries, keys = sizes
    if mask is None or mask.ndim != 4 or mask.shape[0] not in (1, batch) or mask.shape[2:] != (queries, keys):
        shape = None if mask is None else tuple(mask.shape)
        raise ValueError(f"{name} of shape {shape} is not (batch, 1, queries, keys) = ({batch}, 1, {queries}, {keys})")
    return mask


def check_cache(past: object, config: StackConfig, hidden: Tensor) -> None:
    """Check that a cache is one of transformers', filled by a model and a batch of this size."""
    if not isinstance(past, Cache):
        raise ValueError(f"past_key_values of type {type(past).__name__} is no cache; use DynamicCache(config=…)")
    layers = (past.self_attention_cache if isinstance(past, EncoderDecoderCache) else past).layers
    tensors: list[Tensor | None] = [getattr(layer, "keys", None) for layer in layers]
    keys = [tensor for tensor in tensors if tensor is not None and tensor.ndim == 4]
    if keys and (len(layers) != config.num_hidden_layers or keys[0].shape[0] != hidden.shape[0]):
        found = f"past_key_values hold {len(layers)} layers of {keys[0].shape[0]} rows"
        due = f"the model has {config.num_hidden_layers} layers and the batch {hidden.shape[0]} rows"
        raise ValueError(f"{found}, but {due}; start a new cache")


def check_length(
    config: StackConfig, positions: Tensor, past: int | Tensor, length: int, grid: tuple[int, int] | None = None
) -> None:
    """Check that positions do not pass the end of their table, before an index error does.

    A row may be longer than the table if some of it is padding, or if it packs several documents. A learned table is
    resampled for images.
    """
    if config.position not in TABLE_POSITIONS or (grid is not None and config.position != "grid"):
        return
    # A static cache counts in a tensor, and the look at it would be another stall.
    end = past + length if isinstance(past, int) else 0
    if can_read_values(positions) or (end > config.max_position_embeddings and not torch.compiler.is_compiling()):
        low, high = map(int, positions.aminmax())
        if low < 0:
            raise ValueError(f"position_ids contain {low}; positions of position={config.position!r} count from 0")
        end = high + 1
    if end > config.max_position_embeddings:
        table = f"max_position_embeddings={config.max_position_embeddings} of position={config.position!r}"
        raise ValueError(f"sequence of {end} tokens exceeds {table}; use position='rope' or truncate")


def check_boundaries(boundaries: Tensor, hidden: Tensor) -> None:
    """Check that documents packed in a row end where the row ends: 0, …, T, never falling."""
    length = hidden.shape[1]
    ends = boundaries.tolist() if can_read_values(boundaries) else [0, length]
    if ends[0] != 0 or ends[-1] != length or ends != sorted(ends):
        raise ValueError(f"cu_seq_lens_q={ends} do not rise from 0 to {length}, as the bounds of documents do")
