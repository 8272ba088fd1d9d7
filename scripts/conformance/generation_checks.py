"""Checks of generation: keywords, caches, padding."""

from typing import Any

import torch

from qkv.scripts.conformance.inputs import generate, padded, source_of
from qkv.scripts.conformance.outcomes import main_output, require, require_close, require_same_tokens, skip_if
from qkv.scripts.conformance.subject import Subject

SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "3 beams": {"num_beams": 3},
    "sampling": {"do_sample": True, "top_k": 0},
}


def generate_keywords(subject: Subject) -> None:
    """Check that forward names every tensor or cache that generate hands over, so that none is swallowed."""
    seen: dict[str, Any] = {}
    model = subject.fresh()
    model.register_forward_pre_hook(lambda _, __, keywords: seen.update(keywords), with_kwargs=True)
    generate(subject, source_of(subject.batch(1)), model, new=3)
    carried = [name for name, value in seen.items() if torch.is_tensor(value) or "Cache" in type(value).__name__]
    lost = [name for name in carried if name not in subject.names]
    require(not lost, f"generate passes {', '.join(lost)}, which forward does not name")


def cache_steps(subject: Subject) -> None:
    """Check that one token at a time with a cache gives the logits of one pass."""
    compare_pieces(subject, (1,) * 12)


def cache_chunks(subject: Subject) -> None:
    """Check that a prompt in chunks (prefill, assisted decoding, a second turn) gives the logits of one pass."""
    compare_pieces(subject, (5, 1, 4, 2))


def compare_pieces(subject: Subject, sizes: tuple[int, ...]) -> None:
    """Compare one pass with the same tokens in pieces."""
    skip_if(subject.cache is None, "forward takes no cache")
    inputs, start, cache = subject.batch(), 0, None
    parts: list[torch.Tensor] = []
    rest = {name: value for name, value in inputs.items() if name != subject.stream}
    if subject.kind == "seq2seq":
        source = {subject.cls.main_input_name: next(iter(rest.values()))}
        rest = {"encoder_outputs": subject.run(subject.model.get_encoder(), source)}
    for size in sizes:
        piece = {**rest, subject.stream: inputs[subject.stream][:, start : start + size]}
        step = subject.run(subject.model, piece, use_cache=True, **{str(subject.cache): cache})
        cache = cache_of(step)
        skip_if(cache is None, "returns no cache")
        start, parts = start + size, [*parts, main_output(step)]
    pieces = "steps of one token" if set(sizes) == {1} else f"pieces of {', '.join(map(str, sizes))}"
    require_close(subject.logits(subject.model, inputs), torch.cat(parts, 1), f"one pass and {pieces}")


def cache_of(output: Any) -> Any:
    """Return the cache of an output, under either name."""
    return output.get("cache", output.get("past_key_values"))


def generate_cached(subject: Subject) -> None:
    """Check that greedy search, beams, seeded sampling and a second turn write the same with and without a cache."""
    inputs = source_of(subject.batch())
    for name, options in SEARCHES.items():
        cached, plain = (generate(subject, inputs, use_cache=on, **options) for on in (True, False))
        require_same_tokens(plain, cached, f"{name}, without and with a cache")
    if subject.kind == "decoder" and subject.cache:
        first = generate(subject, {"input_ids": subject.ids(1, 6)}, return_dict_in_generate=True)
        longer = {"input_ids": torch.cat([first.sequences, subject.ids(1, 3, 5)], 1)}
        expected, cache = generate(subject, longer), cache_of(first)
        if cache is not None:
            second = generate(subject, {**longer, subject.cache: cache})
            require_same_tokens(expected, second, "from scratch and from the returned cache")


def generate_static(subject: Subject) -> None:
    """Check that a static cache writes the tokens of a dynamic one."""
    skip_if(not subject.cls._can_compile_fullgraph, "claims no static cache")
    for name in ("greedy", "3 beams"):
        dynamic, static = (
            generate(subject, source_of(subject.batch()), cache_implementation=cache, **SEARCHES[name])
            for cache in ("dynamic", "static")
        )
        require_same_tokens(dynamic, static, f"{name}, dynamic and static cache")


def generate_padded(subject: Subject) -> None:
    """Check that a prompt in a padded batch (decoders: left, encoders: right) writes what it writes alone."""
    rows = padded(subject, "right" if subject.kind == "seq2seq" else "left")
    for name in ("greedy", "3 beams"):
        alone, together = (generate(subject, source_of(each), **SEARCHES[name]) for each in (rows.alone, rows.inputs))
        require_same_tokens(alone, together[:1], f"{name}, alone and padded")
