"""Checks of training: loss, accumulation, label smoothing, checkpointing, LoRA."""

import importlib
import importlib.util
import inspect
import tempfile
from typing import Any

import torch
from torch import Tensor, nn

from qkv.scripts.conformance.inputs import labelled
from qkv.scripts.conformance.outcomes import GRADIENTS, Limit, main_output, require, require_close, score, skip_if
from qkv.scripts.conformance.subject import Inputs, Subject

SMOOTHING = 0.2
SEEN = 1e-6  # a gradient below it may be rounding


def loss(subject: Subject) -> None:
    """Check that the loss is the cross entropy of the model's logits, without labels of -100."""
    for part in (False, True):
        batch = labelled(subject, part=part)
        out = subject.run(subject.model, batch.inputs, labels=batch.labels)
        require_close(batch.expected_loss(out.logits), out.loss, "cross entropy and loss" + ", some labels -100" * part)


def accumulation(subject: Subject) -> None:
    """Check that losses of micro-batches, as Trainer scales them, add up to the loss of the whole batch."""
    keywords = any(each.kind is each.VAR_KEYWORD for each in inspect.signature(subject.cls.forward).parameters.values())
    accepts = getattr(subject.model, "accepts_loss_kwargs", keywords)
    skip_if(not accepts, "Trainer divides by the steps itself")
    batch = labelled(subject, part=True)
    counted = batch.labels[:, 1:] if batch.shifted else batch.labels
    count = counted.ne(-100).sum()
    whole, parts = subject.run(subject.model, batch.inputs, labels=batch.labels).loss, torch.zeros(())
    for row in range(2):
        inputs = {name: value[row : row + 1] for name, value in batch.inputs.items()}
        labels = batch.labels[row : row + 1]
        parts = parts + subject.run(subject.model, inputs, labels=labels, num_items_in_batch=count).loss
    require_close(whole, parts, f"one batch {whole:.3f}, two steps {parts:.3f}")


def label_smoothing(subject: Subject) -> None:
    """Check that label_smoothing_factor of Trainer smooths the targets that the model is trained on."""
    skip_if(importlib.util.find_spec("accelerate") is None, "accelerate is not installed, which Trainer needs")
    from transformers import Trainer, TrainingArguments

    batch = labelled(subject, part=True)
    inputs: Inputs = dict(batch.inputs)
    if subject.kind == "seq2seq":  # as DataCollatorForSeq2Seq does
        make = getattr(subject.model, "prepare_decoder_input_ids_from_labels", None)
        inputs["decoder_input_ids"] = make(batch.labels) if make else subject.batch()["decoder_input_ids"]
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"label_smoothing_factor": SMOOTHING, "report_to": "none", "use_cpu": True}
        trainer = Trainer(subject.fresh(), TrainingArguments(folder, **options))
        got: Any = trainer.compute_loss(subject.model, {**inputs, "labels": batch.labels.clone()})
    expected = batch.expected_loss(subject.logits(subject.model, inputs), label_smoothing=SMOOTHING)
    require_close(expected, got, f"expected {expected:.3f}, Trainer {got:.3f}")


def checkpointing(subject: Subject) -> None:
    """Check that gradient checkpointing changes neither outputs nor gradients."""
    skip_if(not subject.cls.supports_gradient_checkpointing, "supports_gradient_checkpointing is False")
    plain, gradients = trained(subject.fresh(still=True), subject.batch())
    model = subject.fresh(still=True)
    model.gradient_checkpointing_enable()
    output, others = trained(model, subject.batch())
    require_close(plain, output, "outputs")
    one_alone = sorted(gradients.keys() ^ others.keys())[:3]
    require(not one_alone, f"gradients of one alone: {', '.join(one_alone)}")
    for name, gradient in gradients.items():
        require_close(gradient, others[name], f"gradient of {name}", GRADIENTS)


def trained(model: Any, inputs: Inputs) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the output in training mode, and the gradients that are more than rounding."""
    out = model.train()(**inputs)
    score(out).backward()
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return main_output(out), {name: gradient for name, gradient in found.items() if gradient.abs().max() > SEEN}


def lora(subject: Subject) -> None:
    """Check that LoRA on all linear layers bypasses none, and that merging equals adding."""
    skip_if(importlib.util.find_spec("peft") is None, "peft is not installed")
    peft: Any = importlib.import_module("peft")
    inputs, base = subject.batch(), subject.fresh()
    expected = subject.logits(base, inputs)
    try:
        model = peft.get_peft_model(subject.fresh(), peft.LoraConfig(r=2, target_modules="all-linear")).eval()
    except ValueError as error:
        raise Limit(f"PEFT: {str(error)[:90]}") from error
    score(base(**inputs)).backward()
    used = {name.removesuffix(".weight") for name, weight in base.named_parameters() if weight.grad is not None}
    require_close(expected, subject.logits(model, inputs), "with an adapter of zero")
    adapters = {name: weight for name, weight in model.named_parameters() if "lora_B" in name}
    for weight in adapters.values():
        nn.init.normal_(weight, std=0.3)
    out = model(**inputs)
    score(out).backward()
    layers = {name.split("base_model.model.")[-1].split(".lora_B")[0]: weight for name, weight in adapters.items()}
    dead = [name for name, weight in layers.items() if weight.grad is None and name in used]
    require(not dead, f"adapters that the model bypasses: {len(dead)} of {len(layers)}, {', '.join(dead[:2])}")
    require_close(main_output(out), subject.logits(model.merge_and_unload(), inputs), "adapter and merged", GRADIENTS)
