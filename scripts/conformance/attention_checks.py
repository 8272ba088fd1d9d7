"""Checks of attention: causality, padding, batches, packed rows, backends."""

import inspect
from contextlib import suppress

import torch
from torch import Tensor

from qkv.scripts.conformance.inputs import Padded, padded
from qkv.scripts.conformance.outcomes import (
    TOLERANCE,
    NotApplicable,
    distance,
    limit_if,
    main_output,
    require,
    require_close,
    skip_if,
)
from qkv.scripts.conformance.subject import Subject

SIDES = ("right", "left")


def causal(subject: Subject) -> None:
    """Check that later tokens change no logits before them: each backend, no mask, ones, padding."""
    mask_name = subject.stream.replace("input_ids", "attention_mask")
    for backend in subject.backends:
        model = subject.fresh(backend)
        for length in (12, 3):
            inputs, ones = subject.batch(2, length), torch.ones(2, length, dtype=torch.long)
            ending = torch.cat([ones[:, 1:], torch.tensor([[0], [1]])], 1)
            for name, mask in (("no mask", None), ("mask of ones", ones), ("padding", ending)):
                options = {} if mask is None else {mask_name: mask}
                base = subject.logits(model, inputs, **options)
                for cut in {1, length // 2, length - 1}:
                    tokens = torch.cat([inputs[subject.stream][:, :cut], subject.ids(2, length, 9)[:, cut:]], 1)
                    other = subject.logits(model, {**inputs, subject.stream: tokens}, **options)
                    say = f"{backend}, {name}: tokens from {cut} on change the logits before"
                    require_close(base[:, :cut], other[:, :cut], say)
                    unmoved = distance(base[1, cut:], other[1, cut:]) < 1e-6
                    require(not unmoved, f"{backend}: logits do not depend on the tokens")


def masked_content(subject: Subject) -> None:
    """Check that ids under the mask do not matter."""
    for backend in subject.backends:
        model = subject.fresh(backend)
        for side in SIDES if subject.kind == "decoder" else ("right",):
            rows = padded(subject, side)
            ids = torch.where(rows.mask == 1, rows.inputs["input_ids"], subject.ids(2, 12, 9))
            base = subject.logits(model, rows.inputs, **rows.positions)
            other = subject.logits(model, {**rows.inputs, "input_ids": ids}, **rows.positions)
            by_id = not subject.per_token and "pad_token_id" in inspect.getsource(subject.cls.forward)
            found_by_id = subject.kind != "seq2seq" and by_id and distance(base, other) > TOLERANCE
            limit_if(found_by_id, "the last token is found by pad_token_id, not by the mask")
            keep = rows.mask.bool() if subject.per_token else slice(None)
            require_close(base[keep], other[keep], f"{backend}, {side}: ids under the mask change the result")


def padding(subject: Subject) -> None:
    """Check that a padded row gives what it gives alone: right; left with position_ids."""
    for backend in subject.backends:
        model = subject.fresh(backend)
        for side in SIDES:
            rows = padded(subject, side)
            alone = subject.logits(model, rows.alone)[0]
            told = first_row(subject, subject.logits(model, rows.inputs, **rows.positions), rows)
            plain = first_row(subject, subject.logits(model, rows.inputs), rows)
            absolute = side == "left" and not rows.positions and subject.kind != "decoder"
            differs = alone.shape == told.shape and distance(alone, told) > TOLERANCE
            limit_if(absolute and differs, "positions count from the left edge: pad on the right")
            say = f"{backend}, {side}: alone and padded" + ", with position_ids" * bool(rows.positions)
            require_close(alone, told, say)
            limit_if(distance(alone, plain) > TOLERANCE, "left padding needs position_ids")


def first_row(subject: Subject, output: Tensor, rows: Padded) -> Tensor:
    """Return the output of the first row at its real tokens."""
    return output[0][rows.mask[0].bool()] if subject.per_token else output[0]


def all_padding(subject: Subject) -> None:
    """Check that a row of padding alone gives no NaN, there or elsewhere, and no NaN gradient."""
    padded(subject, "right")  # or the check does not apply
    for backend in subject.backends:
        model, inputs, mask = subject.fresh(backend), subject.batch(2, 6), torch.ones(2, 6, dtype=torch.long)
        whole = subject.logits(model, inputs)
        mask[0] = 0
        with torch.set_grad_enabled(backend != "flex_attention"):  # which has no backward pass on a CPU
            out = main_output(model(**inputs, attention_mask=mask))
        require_close(whole[1], out[1], f"{backend}: the other row")
        if out.requires_grad:
            out[1].sum().backward()
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        finite = all(each.isfinite().all() for each in (out, *gradients))
        require(finite, f"{backend}: outputs or gradients are not finite")


def batch(subject: Subject) -> None:
    """Check that a batch gives what its rows give one by one."""
    inputs = subject.batch(3)
    for row, whole in enumerate(subject.logits(subject.model, inputs)):
        alone = subject.logits(subject.model, {name: value[row : row + 1] for name, value in inputs.items()})[0]
        require_close(alone, whole, f"row {row} alone and in a batch of 3")


def packing(subject: Subject) -> None:
    """Check that restarting position_ids isolate packed rows on every backend, or on none."""
    applies = "position_ids" in subject.names and subject.per_token
    skip_if(not applies, "takes no position_ids, or gives no logits of tokens")
    ids, positions = subject.ids(1, 13), torch.cat([torch.arange(6), torch.arange(7)])[None]
    uncached = {"use_cache": False} if subject.cache else {}
    off = {}
    for backend in subject.backends:
        model = subject.fresh(backend)
        alone = subject.logits(model, {"input_ids": ids[:, 6:]}, **uncached)
        packed = subject.logits(model, {"input_ids": ids}, position_ids=positions, **uncached)
        off[backend] = distance(alone, packed[:, 6:])
    limit_if(min(off.values()) > TOLERANCE, "packed rows mix on every backend: pass a mask of blocks")
    mixed = ", ".join(f"{backend} {value:.2g}" for backend, value in off.items())
    require(max(off.values()) <= TOLERANCE, f"packed rows see each other on some backends: {mixed}")


def backends(subject: Subject) -> None:
    """Check that attention backends which the class claims run and agree, with and without padding."""
    for backend, error in subject.refused.items():
        if error is not None and "CPU" not in str(error):
            raise RuntimeError(f"{backend} is claimed and fails: {type(error).__name__}: {error}") from error
    skip_if(len(subject.backends) < 2, "one backend")
    first, *others = subject.backends
    cases: list[tuple[str, Padded | None]] = [("no mask", None)]
    with suppress(NotApplicable):
        cases += [(side, padded(subject, side)) for side in SIDES if subject.per_token]
    for name, rows in cases:
        inputs, keep = (rows.inputs | rows.positions, rows.mask.bool()) if rows else (subject.batch(), slice(None))
        expected = subject.logits(subject.fresh(first), inputs)[keep]
        for other in others:
            require_close(expected, subject.logits(subject.fresh(other), inputs)[keep], f"{first} and {other}, {name}")
