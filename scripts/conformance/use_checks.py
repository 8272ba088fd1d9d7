"""Checks of the uses of a model: generate, save and load, train."""

import copy
import importlib
import inspect
import json
import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import is_accelerate_available, is_peft_available

from qkv.scripts.conformance.compare import (
    GRADIENTS,
    STORED,
    StepAside,
    compare_searches,
    generate,
    labelled,
    limit_if,
    padded,
    require,
    require_close,
    saved,
    skip_if,
    source_of,
)
from qkv.scripts.conformance.forward_checks import tensors
from qkv.scripts.conformance.subject import Inputs, Subject, main_output, score, still

SHORT = ("greedy", "3 beams")
LOADED_LOGITS = 1e-5  # equal weights in other memory move the last bits alone
NEW_TOKENS = 7
SMOOTHING = 0.2


def generate_keywords(subject: Subject) -> None:
    """Check that forward names every tensor or cache that generate hands over, so that none is swallowed."""
    seen: dict[str, Any] = {}
    model = subject.fresh()
    model.register_forward_pre_hook(lambda _, __, keywords: seen.update(keywords), with_kwargs=True)
    generate(subject, subject.batch(1), model)
    carried = {name for name, value in seen.items() if torch.is_tensor(value) or "Cache" in type(value).__name__}
    lost = sorted(carried - subject.names)
    require(not lost, f"generate passes {', '.join(lost)}, which forward does not name")


def cache_pieces(subject: Subject, sizes: list[int]) -> None:
    """Check that pieces with a cache give the logits of one pass; the first has the whole image if there is one."""
    skip_if(subject.cache is None, "forward takes no cache")
    inputs, cache = subject.batch(2, 12 + subject.image_length), None
    parts: list[torch.Tensor] = []
    rest = {name: value for name, value in inputs.items() if name != subject.stream}
    if subject.kind == "seq2seq":
        rest["encoder_outputs"] = subject.run(subject.model.get_encoder(), rest)
        del rest[subject.cls.main_input_name]
    for piece in inputs[subject.stream].split([subject.image_length + sizes[0], *sizes[1:]], 1):
        options = {str(subject.cache): cache, "use_cache": True}
        step = subject.run(subject.model, {**rest, subject.stream: piece}, **options)
        cache, rest = step.get("cache", step.get("past_key_values")), rest if subject.kind == "seq2seq" else {}
        skip_if(cache is None, "returns no cache")
        parts.append(main_output(step))
    require_close(subject.logits(subject.model, inputs), torch.cat(parts, 1), f"one pass and pieces of {sizes} tokens")


def generate_cached(subject: Subject) -> None:
    """Check that greedy search, beams, seeded sampling and a second turn write the same with and without a cache."""
    inputs = subject.batch()
    compare_searches(subject, "without and with a cache", (inputs, {"use_cache": False}), (inputs, {"use_cache": True}))
    if subject.kind == "decoder" and subject.cache:
        first = generate(subject, {"input_ids": subject.ids(1, 6)}, return_dict_in_generate=True)
        longer = {"input_ids": torch.cat([first.sequences, subject.ids(1, 3, 5)], 1)}
        expected, cache = generate(subject, longer), first.get("cache", first.get("past_key_values"))
        if cache is not None:
            second = generate(subject, {**longer, subject.cache: cache})
            require(torch.equal(expected, second), "a second turn from scratch and from the returned cache")


def generate_static(subject: Subject) -> None:
    """Check that a static cache writes the tokens of a dynamic one."""
    skip_if(not subject.cls._can_compile_fullgraph, "claims no static cache")
    dynamic, static = ((subject.batch(), {"cache_implementation": kind}) for kind in ("dynamic", "static"))
    compare_searches(subject, "dynamic and static cache", dynamic, static, names=SHORT)


def generate_padded(subject: Subject) -> None:
    """Check that a prompt in a padded batch (decoders: left, encoders: right) writes the same as alone."""
    rows = padded(subject, "right" if subject.kind == "seq2seq" else "left")
    compare_searches(subject, "alone and padded", (rows.alone, {}), (rows.inputs, {}), names=SHORT)


def reload(subject: Subject) -> None:
    """Check that one file, shards and bfloat16 load with the same weights, buffers and outputs, and without pickle."""
    inputs, model = subject.batch(), subject.fresh()
    size = sum(weight.numel() for weight in model.parameters()) * 4
    for name, dtype in (("one file", torch.float32), ("shards", torch.float32), ("bfloat16", torch.bfloat16)):
        with saved(model, f"{max(size // 4000, 30)}KB" if name == "shards" else None) as folder:
            pickles = [path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pkl")]
            loaded, info = subject.cls.from_pretrained(folder, dtype=dtype, output_loading_info=True)
        lost = pickles + [f"{key} {info[key]}" for key in ("missing_keys", "unexpected_keys") if info[key]]
        require(not lost, f"{name}: {', '.join(lost)}")
        have = tensors(loaded)
        for key, value in tensors(model).items():
            require(key in have and not have[key].is_meta, f"{name}: {key} is gone, or on meta")
            require_close(value.to(have[key].dtype), have[key], f"{name}: {key} after loading", STORED)
        if dtype is torch.float32:
            got = subject.logits(loaded.eval(), inputs)
            require_close(subject.logits(model, inputs), got, f"logits, {name}", LOADED_LOGITS)


def tables(model: Any) -> tuple[Any, Any]:
    """Return the weights of the output layer and of the input embeddings."""
    output, table = model.get_output_embeddings(), model.get_input_embeddings()
    return getattr(output, "weight", None), getattr(table, "weight", None)


def tied(subject: Subject) -> None:
    """Check that tied tables are one tensor in memory and on disk, and that untied ones stay two."""
    output, table = tables(subject.model)
    skip_if(output is None or table is None or output.shape != table.shape, "no output table of the input's shape")
    for tie in (True, False):
        config = copy.deepcopy(subject.config)
        config.tie_word_embeddings = config.get_text_config(decoder=True).tie_word_embeddings = tie
        model = subject.cls._from_config(config, dtype=torch.float32)
        output, table = tables(model)
        limit_if((output is table) != tie, "does not tie" if tie else "always ties")
        nn.init.normal_(output)
        with saved(model) as folder:
            loaded = subject.cls.from_pretrained(folder, dtype=torch.float32)
            size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        got, got_table = tables(loaded)
        require((got is got_table) == tie, f"tie_word_embeddings={tie}: otherwise after loading")
        require_close(output, got, f"output table, tie_word_embeddings={tie}", 0)
        stored = 4 * sum(value.numel() for value in tensors(model).values())
        require(not tie or size <= stored + 2 * table.numel() + 40_000, "the table is saved twice")  # with the header


def resize(subject: Subject) -> None:
    """Check that resize_token_embeddings keeps the old logits, and survives saving with its configuration."""
    skip_if(subject.model.get_output_embeddings() is None, "no output table")
    size, model, inputs = subject.text.vocab_size + NEW_TOKENS, subject.fresh(), subject.batch()
    before = subject.logits(model, inputs)
    model.resize_token_embeddings(size, mean_resizing=False)
    after, told = subject.logits(model, inputs), model.config.get_text_config(decoder=True).vocab_size
    require((after.shape[-1], told) == (size, size), f"{size} tokens: {after.shape[-1]} logits, vocab_size {told}")
    require_close(before, after[..., :-NEW_TOKENS], "logits of the old tokens")
    with saved(model) as folder:
        loaded = subject.cls.from_pretrained(folder, dtype=torch.float32).eval()
    require_close(after, subject.logits(loaded, inputs), "resized, saved and loaded")
    if "labels" in subject.names:
        newest = torch.full_like(inputs[subject.stream], size - 1)
        loss = subject.run(model, source_of(inputs), labels=newest).loss
        require(loss is None or loss.isfinite(), "the loss of a new token is not finite")


def config(subject: Subject) -> None:
    """Check that every field of the configuration survives its file, and that it builds the same model."""
    with saved(subject.config) as folder:
        again = type(subject.config).from_pretrained(folder)
    before, after = (json.loads(each.to_json_string(use_diff=False)) for each in (subject.config, again))
    names = sorted((before.keys() | after.keys()) - {"transformers_version", "_name_or_path"})
    changed = [name for name in names if before.get(name) != after.get(name)]
    fields = ", ".join(f"{key} {before.get(key)!r} -> {after.get(key)!r}" for key in changed[:3])
    require(not changed, f"fields change: {fields}")
    built = subject.logits(subject.fresh(None, again), subject.batch())
    require_close(subject.logits(subject.model, subject.batch()), built, "built from the file")


def loss(subject: Subject) -> None:
    """Check that the loss is the cross entropy of the model's logits, without labels of -100."""
    batch = labelled(subject)
    out = subject.run(subject.model, batch.inputs, labels=batch.labels)
    require_close(batch.expected_loss(out.logits), out.loss, "cross entropy and loss, some labels -100")


def accumulation(subject: Subject) -> None:
    """Check that losses of micro-batches, as Trainer scales them, add up to the loss of the whole batch."""
    keywords = any(each.kind is each.VAR_KEYWORD for each in inspect.signature(subject.cls.forward).parameters.values())
    skip_if(not getattr(subject.model, "accepts_loss_kwargs", keywords), "Trainer divides by the steps itself")
    batch = labelled(subject)
    count = (batch.labels[:, 1:] if batch.shifted else batch.labels).ne(-100).sum()
    whole, parts = subject.run(subject.model, batch.inputs, labels=batch.labels).loss, torch.zeros(())
    for row in range(2):
        inputs = {name: value[row : row + 1] for name, value in batch.inputs.items()}
        labels = batch.labels[row : row + 1]
        parts = parts + subject.run(subject.model, inputs, labels=labels, num_items_in_batch=count).loss
    require_close(whole, parts, f"one batch {whole:.3f}, two steps {parts:.3f}")


def label_smoothing(subject: Subject) -> None:
    """Check that label_smoothing_factor of Trainer smooths the targets that the model is trained on."""
    skip_if(not is_accelerate_available(), "accelerate is not installed, which Trainer needs")
    from transformers import Trainer, TrainingArguments

    batch = labelled(subject)
    inputs: Inputs = dict(batch.inputs)
    if subject.kind == "seq2seq":  # as DataCollatorForSeq2Seq does
        make = getattr(subject.model, "prepare_decoder_input_ids_from_labels", None)
        inputs["decoder_input_ids"] = make(batch.labels) if make else subject.batch()["decoder_input_ids"]
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(folder, label_smoothing_factor=SMOOTHING, report_to="none", use_cpu=True)
        trainer = Trainer(subject.fresh(), options)
        got: Any = trainer.compute_loss(subject.model, {**inputs, "labels": batch.labels.clone()})
    expected = batch.expected_loss(subject.logits(subject.model, inputs), label_smoothing=SMOOTHING)
    require_close(expected, got, f"expected {expected:.3f}, Trainer {got:.3f}")


def checkpointing(subject: Subject) -> None:
    """Check that gradient checkpointing changes neither outputs nor gradients."""
    skip_if(not subject.cls.supports_gradient_checkpointing, "supports_gradient_checkpointing is False")
    plain, gradients = trained(still(subject.fresh()), subject.batch())
    model = still(subject.fresh())
    model.gradient_checkpointing_enable()
    output, others = trained(model, subject.batch())
    require_close(plain, output, "outputs")
    require(gradients.keys() == others.keys(), f"gradients of one: {sorted(gradients.keys() ^ others.keys())[:3]}")
    for name, gradient in gradients.items():
        require_close(gradient, others[name], f"gradient of {name}", GRADIENTS)


def trained(model: Any, inputs: Inputs) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the output in training mode, and the gradients that are more than rounding, 1e-6."""
    out = model.train()(**inputs)
    score(out).backward()
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return main_output(out), {name: gradient for name, gradient in found.items() if (gradient.abs() > 1e-6).any()}


def lora(subject: Subject) -> None:
    """Check that LoRA on all linear layers bypasses none, and that merging equals adding."""
    skip_if(not is_peft_available(), "peft is not installed")
    peft: Any = importlib.import_module("peft")
    inputs, base = subject.batch(), subject.fresh()
    try:
        model = peft.get_peft_model(subject.fresh(), peft.LoraConfig(r=2, target_modules="all-linear")).eval()
    except ValueError as error:
        raise StepAside("limit", f"PEFT: {str(error)[:90]}") from error
    score(base(**inputs)).backward()
    used = {name.removesuffix(".weight") for name, weight in base.named_parameters() if weight.grad is not None}
    adapters = {name: weight for name, weight in model.named_parameters() if "lora_B" in name}
    for weight in adapters.values():
        nn.init.normal_(weight, std=0.3)
    out = model(**inputs)
    score(out).backward()
    layers = {name.split("base_model.model.")[-1].split(".lora_B")[0]: weight for name, weight in adapters.items()}
    dead = [name for name, weight in layers.items() if weight.grad is None and name in used]
    require(not dead, f"adapters that the model bypasses: {len(dead)} of {len(layers)}, {', '.join(dead[:2])}")
    require_close(main_output(out), subject.logits(model.merge_and_unload(), inputs), "adapter and merged", GRADIENTS)
