"""Checks of a forward pass: masks, backends, state, modes, precision, records, compilers, embeddings, keywords."""

import inspect
import itertools
from typing import Any

import torch
from torch import nn

from qkv.scripts.conformance.compare import (
    compare_searches,
    differ,
    distance,
    limit_if,
    padded,
    require,
    require_close,
    said,
    skip_if,
)
from qkv.scripts.conformance.subject import Subject, main_output, still

MISSPELT = "atention_mask"
SIDES = ("right", "left")


def causal(subject: Subject) -> None:
    """Check that later tokens change no logits before them: each backend, no mask, ones, padding."""
    mask_name = subject.stream.replace("input_ids", "attention_mask")
    for backend in subject.backends:
        model = subject.fresh(backend)
        for length in (12, 3):
            inputs, changed = subject.batch(2, length), subject.batch(2, length, 9)[subject.stream]
            ending = torch.ones(2, length, dtype=torch.long)
            ending[0, -1] = 0
            for name, mask in (("no mask", None), ("mask of ones", torch.ones_like(ending)), ("padding", ending)):
                options = {} if mask is None else {mask_name: mask}
                base = subject.logits(model, inputs, **options)
                for cut in {1, length // 2, length - 1}:
                    tokens = torch.cat([inputs[subject.stream][:, :cut], changed[:, cut:]], 1)
                    other = subject.logits(model, {**inputs, subject.stream: tokens}, **options)
                    require_close(base[:, :cut], other[:, :cut], f"{backend}, {name}: tokens from {cut} on show before")
                    require(differ(base[1, cut:], other[1, cut:]), f"{backend}: logits do not depend on the tokens")


def masked_content(subject: Subject) -> None:
    """Check that ids under the mask do not matter."""
    for backend in subject.backends:
        model = subject.fresh(backend)
        for side in SIDES if subject.kind == "decoder" else ("right",):
            rows = padded(subject, side)
            ids = torch.where(rows.mask == 1, rows.inputs["input_ids"], subject.ids(2, 12, 9))
            base = subject.logits(model, rows.inputs, **rows.positions)
            other = subject.logits(model, {**rows.inputs, "input_ids": ids}, **rows.positions)
            pooled = subject.kind == "encoder" and not subject.per_token and differ(base, other)
            limit_if(pooled, "the pooled token may be found by pad_token_id, not by the mask")
            keep = rows.mask.bool() if subject.per_token else slice(None)
            require_close(base[keep], other[keep], f"{backend}, {side}: ids under the mask change the result")


def padding(subject: Subject) -> None:
    """Check that a padded row gives the same as alone: right; left with position_ids."""
    for backend in subject.backends:
        model = subject.fresh(backend)
        for side in SIDES:
            rows = padded(subject, side)
            real = rows.mask[0].bool() if subject.per_token else slice(None)
            alone = subject.logits(model, rows.alone)[0]
            told = subject.logits(model, rows.inputs, **rows.positions)[0][real]
            absolute = side == "left" and not rows.positions and subject.kind != "decoder"
            limit_if(absolute and differ(alone, told), "positions count from the left edge: pad right")
            require_close(alone, told, f"{backend}, {side}: alone and padded")
            plain = subject.logits(model, rows.inputs)[0][real]
            limit_if(differ(alone, plain), "left padding needs position_ids")


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
        require(all(each.isfinite().all() for each in (out, *gradients)), f"{backend}: outputs or gradients not finite")


def batch(subject: Subject) -> None:
    """Check that a batch gives the same as its rows one by one."""
    inputs = subject.batch(3)
    for row, whole in enumerate(subject.logits(subject.model, inputs)):
        alone = subject.logits(subject.model, {name: value[row : row + 1] for name, value in inputs.items()})[0]
        require_close(alone, whole, f"row {row} alone and in a batch of 3")


def packing(subject: Subject) -> None:
    """Check that restarting position_ids isolate packed rows on every backend, or on none."""
    skip_if("position_ids" not in subject.names or not subject.per_token, "no position_ids, or no logits of tokens")
    ids, positions = torch.cat([subject.ids(1, 6), subject.ids(1, 7, 1)], 1), torch.tensor([[*range(6), *range(7)]])
    uncached = {"use_cache": False} if subject.cache else {}
    off = {}
    for backend in subject.backends:
        model = subject.fresh(backend)
        alone = subject.logits(model, {"input_ids": ids[:, 6:]}, **uncached)
        packed = subject.logits(model, {"input_ids": ids}, position_ids=positions, **uncached)
        off[backend] = differ(alone, packed[:, 6:])
    limit_if(all(off.values()), "packed rows mix on every backend: pass a mask of blocks")
    mixed = ", ".join(backend for backend in off if off[backend])
    require(not mixed, f"packed rows see each other under {mixed}, and not under other backends")


def backends(subject: Subject) -> None:
    """Check that attention backends which the class claims run and agree; `padding` has each with padding."""
    first, *others = subject.backends
    for backend, error in subject.refused.items():
        if "CPU" not in str(error):
            raise RuntimeError(f"{backend} is claimed and fails: {type(error).__name__}: {error}") from error
    skip_if(not others, "one backend")
    expected = subject.logits(subject.fresh(first), subject.batch())
    for other in others:
        require_close(expected, subject.logits(subject.fresh(other), subject.batch()), f"{first} and {other}")


def stateless(subject: Subject) -> None:
    """Check that the same input gives the same bits, also after another length; a forward changes no tensor."""
    model, inputs = subject.fresh(), subject.batch()
    before = {name: value.clone() for name, value in tensors(model).items()}
    first = subject.logits(model, inputs)
    subject.run(model, subject.batch(1, 30, 3))
    second = subject.logits(model, inputs)
    require(torch.equal(first, second), f"the same input twice: off by {distance(first, second):.2g}")
    for name, value in tensors(model).items():
        changed = name in before and before[name].shape == value.shape and not torch.equal(before[name], value)
        require(not changed, f"a forward changed {name}")


def tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by name."""
    return dict(itertools.chain(model.named_parameters(), model.named_buffers()))


def train_mode(subject: Subject) -> None:
    """Check that train mode without dropout equals eval mode."""
    model, inputs = still(subject.fresh()), subject.batch()
    skip_if(any(isinstance(each, nn.modules.batchnorm._BatchNorm) for each in model.modules()), "batch normalization")
    expected = subject.logits(model.eval(), inputs)
    require_close(expected, subject.logits(model.train(), inputs), "train and eval mode")


def bf16(subject: Subject) -> None:
    """Check that bfloat16 is finite, and as near to float32 as rounding the weights alone, times 10."""
    exact = subject.logits(subject.model, subject.batch())
    rounded = subject.logits(subject.fresh().bfloat16().float(), subject.batch())
    inputs = {name: each.bfloat16() if each.is_floating_point() else each for name, each in subject.batch().items()}
    half = subject.logits(subject.fresh().bfloat16(), inputs)
    off, noise, size = (part.float().pow(2).mean().sqrt() for part in (exact - half, exact - rounded, exact))
    say = f"off by {off / size:.2g} of the size; rounding the weights alone gives {noise / size:.2g}"
    require(off <= 10 * noise + 0.02 * size, say)


def recorded(subject: Subject) -> None:
    """Check that recorded attentions are probabilities and change nothing, or that their absence is said."""
    inputs, model = subject.batch(), subject.fresh("eager")
    plain = subject.logits(model, inputs)
    out = subject.run(model, inputs, output_hidden_states=True, output_attentions=True)
    require_close(plain, main_output(out), "with and without recording")
    matrices = attentions(out)
    for name, layer in matrices if subject.kind not in ("image", "speech") else ():
        sums = layer.sum(-1)  # below 1 where a sink takes a share
        probable = sums.max() <= 1.001 and sums.min() >= 0 and layer.min() >= 0
        require(probable, f"{name}: values from {layer.min():.3f}, rows sum to {sums.min():.3f} to {sums.max():.3f}")
    if "sdpa" in subject.backends and matrices:
        with said() as lines:
            other = subject.run(subject.fresh("sdpa"), inputs, output_attentions=True)
        require(
            attentions(other) or "attention" in "".join(lines), "sdpa gives no attentions that are asked for, silently"
        )


def attentions(output: Any) -> list[tuple[str, torch.Tensor]]:
    """Return the recorded attentions of an output that have a matrix for each head, with their names."""
    found = [(name, layer) for name in output if name.endswith("attentions") for layer in output[name] or ()]
    return [(name, layer) for name, layer in found if torch.is_tensor(layer) and layer.dim() == 4]


def compiled(subject: Subject) -> None:
    """Check that torch.compile(fullgraph=True) gives the eager logits (traced, without code generation)."""
    skip_if(subject.kind == "decoder" and not subject.cls._can_compile_fullgraph, "_can_compile_fullgraph is False")
    model = subject.fresh()
    limit_if(any(isinstance(each, nn.RNNBase) for each in model.modules()), "PyTorch compiles no nn.LSTM in full")
    subject.run(model, subject.batch())  # the first forward installs hooks of transformers under a lock
    torch._dynamo.reset()
    compare_batches(subject, torch.compile(model, fullgraph=True, backend="aot_eager"), "compiled")


def exported(subject: Subject) -> None:
    """Check that torch.export gives the eager logits, also for another batch than the traced one."""
    uncached = {"use_cache": False} if subject.cache else {}
    program = torch.export.export(subject.fresh(), (), {**subject.batch(), **uncached}, strict=False).module()
    compare_batches(subject, program, "exported", **uncached)


def compare_batches(subject: Subject, program: Any, name: str, **options: Any) -> None:
    """Compare the eager model with a program, also for another batch, for a trace may keep values of the first."""
    for shift in (0, 11):
        inputs = subject.batch(shift=shift)
        expected, got = subject.logits(subject.model, inputs), subject.logits(program, inputs, **options)
        require_close(expected, got, f"eager and {name}" + ", another batch" * bool(shift))


def embeds(subject: Subject) -> None:
    """Check that inputs_embeds of the embedding table give the logits, and the generated tokens, of input_ids."""
    name, inputs = subject.stream.replace("input_ids", "inputs_embeds"), subject.batch()
    skip_if(name not in subject.names, f"no {name}")
    limit_if(subject.kind == "encoder" and "decoder_input_ids" in subject.names, "decoder inputs are made of ids")
    owner = subject.model.get_decoder() if subject.kind == "seq2seq" else subject.model
    other = {key: value for key, value in inputs.items() if key != subject.stream}
    other[name] = owner.get_input_embeddings()(inputs[subject.stream]).detach()
    require_close(subject.logits(subject.model, inputs), subject.logits(subject.model, other), "ids and embeddings")
    if subject.kind == "decoder" and name in inspect.signature(subject.cls.prepare_inputs_for_generation).parameters:
        compare_searches(subject, "from ids and from embeddings", (inputs, {}), (other, {}), names=["greedy"])


def unknown_keyword(subject: Subject) -> None:
    """Check that a misspelt argument is refused or warned about."""
    with said() as lines:
        try:
            subject.run(subject.fresh(), subject.batch(), **{MISSPELT: torch.zeros(2, 12)})
        except Exception:  # refused, by whatever error
            return
    limit_if(MISSPELT not in "".join(lines), "unknown keywords vanish in **kwargs")
