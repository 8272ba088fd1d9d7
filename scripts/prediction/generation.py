"""Generate texts with `generate` of transformers: continuations, answers and translations."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from qkv.scripts.common.phases import say_once
from qkv.scripts.data.tokenization import truncate
from qkv.scripts.prediction.options import Options
from qkv.scripts.prediction.source import Source

NEW_TOKENS = 64  # unless the model or the options say how many
# Options that are passed on to `generate`.
SAMPLING = ("temperature", "top_k", "top_p", "repetition_penalty", "num_beams")


def batched(source: Source, options: Options) -> int:
    """Return how many texts are computed together: one where no token pads them."""
    return options.get("batch_size", 16) if source.tokenizer.pad_token_id is not None else 1


def write_texts(source: Source, inputs: Sequence[str], options: Options) -> Iterator[dict[str, Any]]:
    """Generate a text for each input."""
    size = batched(source, options)
    for start in range(0, len(inputs), size):
        for text in generate_texts(source, inputs[start : start + size], options):
            yield {"prediction": text}


def generate_texts(source: Source, prompts: Sequence[Any], options: Options, streamer: Any = None) -> list[str]:
    """Generate a text for each prompt in one batch; a single prompt may have a streamer."""
    tokens, made = generate_tokens(source, prompts, options, streamer)
    new = made[:, tokens["input_ids"].shape[1] :] if source.task == "text-generation" else made
    return source.tokenizer.batch_decode(new, skip_special_tokens=True)


@torch.no_grad()
def generate_tokens(
    source: Source, prompts: str | Sequence[Any], options: Options, streamer: Any = None
) -> tuple[Any, torch.Tensor]:
    """Return the tokens of prompts, and the rows of `generate` (B, T), which begin with them for a decoder."""
    tokens = prepared(source, [prompts] if isinstance(prompts, str | dict) else prompts, options)
    length = tokens["input_ids"].shape[1]
    return tokens, source.model.generate(**tokens, **arguments(source, options, length), streamer=streamer)


def prepared(source: Source, texts: Sequence[Any], options: Options) -> Any:
    """Return the tokens of prompts, padded and cut on the left for a decoder, which goes on at their right end."""
    tokenizer, limit, end = source.tokenizer, positions(source), list[int]()
    tokenizer.padding_side = tokenizer.truncation_side = "right"
    if source.task == "text-generation":
        tokenizer.padding_side = tokenizer.truncation_side = "left"
        # The token between a prompt and its response, where a run learned from both.
        end = [tokenizer.bos_token_id] if source.columns.get("target") and tokenizer.bos_token else []
        if limit:  # room for the generated text
            wanted = new_tokens(source, options).get("max_new_tokens", NEW_TOKENS)
            limit = max(limit - wanted, min(limit - 1, limit // 2), 1)
    most = max(limit - len(end), 1) if limit else tokenizer.model_max_length
    # Masks of infilling are typed.
    typed = {"split_special_tokens": tokenizer.split_special_tokens} if source.task == "translation" else {}
    read, lengths = truncate(tokenizer, [text for text in texts if isinstance(text, str)], most, **typed)
    if any(length > most for length in lengths):
        lost = "first" if source.task == "text-generation" else "last"
        say_once(f"the {lost} tokens of texts of more than {most:,} are left out, for which {source.name} has no room")
    made = ([*row.tolist(), *end] for row in read)
    rows = [next(made) if isinstance(text, str) else text["input_ids"] for text in texts]
    tokens = tokenizer.pad({"input_ids": rows}, return_tensors="pt", padding=len(texts) > 1, verbose=False)
    return tokens.to(source.model.device)


def positions(source: Source) -> int | None:
    """Return the maximum number of tokens that a model reads; None where there is no limit."""
    limit = getattr(source.model.config, "max_position_embeddings", None)
    return limit if isinstance(limit, int) and limit > 0 else None


def new_tokens(source: Source, options: Options) -> dict[str, int]:
    """Return how many tokens may be generated: by the options, the model, or a moderate default."""
    if "max_new_tokens" in options:
        return {"max_new_tokens": options["max_new_tokens"]}
    stored = source.model.generation_config
    if stored.max_new_tokens or (stored.max_length or 0) > 20:  # 20 is the default of transformers
        return {}
    limit = positions(source)
    return {"max_new_tokens": min(NEW_TOKENS, limit - 1) if limit else NEW_TOKENS}


def arguments(source: Source, options: Options, length: int) -> dict[str, Any]:
    """Return the arguments of `generate`: greedy unless options of sampling are set or the model samples."""
    given = {key: options[key] for key in SAMPLING if key in options}
    if any(key in given for key in ("temperature", "top_k", "top_p")):
        given["do_sample"] = True
    elif not source.model.generation_config.do_sample:
        given["do_sample"] = False
    limit, most = new_tokens(source, options), positions(source)
    if most and source.task == "text-generation" and "max_new_tokens" in limit:
        limit["max_new_tokens"] = max(1, min(limit["max_new_tokens"], most - length))
    return given | limit
