"""Checks of a forward pass: state, modes, precision, records, compilers, embeddings, keywords."""

import inspect
import itertools
from typing import Any

import torch
from torch import nn

from qkv.scripts.conformance.inputs import generate, said
from qkv.scripts.conformance.outcomes import (
    distance,
    limit_if,
    main_output,
    require,
    require_close,
    require_same_tokens,
    skip_if,
)
from qkv.scripts.conformance.subject import Subject

MISSPELT = "atention_mask"


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
    model, inputs = subject.fresh(still=True), subject.batch()
    normalized = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())
    skip_if(normalized, "batch normalization")
    expected = subject.logits(model.eval(), inputs)
    require_close(expected, subject.logits(model.train(), inputs), "train and eval mode")


def bf16(subject: Subject) -> None:
    """Check that bfloat16 is finite, and as near to float32 as rounding the weights alone, times 10."""
    exact = subject.logits(subject.model, subject.batch())
    rounded = subject.logits(subject.fresh().bfloat16().float(), subject.batch())
    inputs = {name: each.bfloat16() if each.is_floating_point() else each for name, each in subject.batch().items()}
    half = subject.logits(subject.fresh().bfloat16(), inputs)
    parts = (exact - half, exact - rounded, exact)
    off, noise, size = (each.float().pow(2).mean().sqrt().item() for each in parts)
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
        told = attentions(other) or "attention" in "".join(lines)
        require(told, "sdpa: attentions are asked for, none come, nothing is said")


def attentions(output: Any) -> list[tuple[str, torch.Tensor]]:
    """Return the recorded attentions of an output that have a matrix for each head, with their names."""
    found = [(name, layer) for name in output if name.endswith("attentions") for layer in output[name] or ()]
    return [(name, layer) for name, layer in found if torch.is_tensor(layer) and layer.dim() == 4]


def compiled(subject: Subject) -> None:
    """Check that torch.compile(fullgraph=True) gives the eager logits (traced, without code generation)."""
    skip_if(subject.kind == "decoder" and not subject.cls._can_compile_fullgraph, "_can_compile_fullgraph is False")
    torch._dynamo.reset()
    compare_batches(subject, torch.compile(subject.fresh(), fullgraph=True, backend="aot_eager"), "compiled")


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
    owner = subject.model.get_decoder() if subject.kind == "seq2seq" else subject.model
    other = {key: value for key, value in inputs.items() if key != subject.stream}
    other[name] = owner.get_input_embeddings()(inputs[subject.stream]).detach()
    require_close(subject.logits(subject.model, inputs), subject.logits(subject.model, other), "ids and embeddings")
    if subject.kind == "decoder" and name in inspect.signature(subject.cls.prepare_inputs_for_generation).parameters:
        by_ids, by_embeddings = (generate(subject, each) for each in (inputs, other))
        require_same_tokens(by_ids, by_embeddings, "generated from ids and from embeddings")


def unknown_keyword(subject: Subject) -> None:
    """Check that a misspelt argument is refused or warned about."""
    with said() as lines:
        try:
            subject.run(subject.fresh(), subject.batch(), **{MISSPELT: torch.zeros(2, 12)})
        except Exception:  # refused, by whatever error
            return
    limit_if(MISSPELT not in "".join(lines), "unknown keywords vanish in **kwargs")
