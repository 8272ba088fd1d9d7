"""Checks of files: weights, ties, other vocabularies, configurations."""

import copy
import json
import tempfile
from typing import Any

import torch
from torch import nn

from qkv.scripts.conformance.forward_checks import tensors
from qkv.scripts.conformance.inputs import reloaded, saved, source_of
from qkv.scripts.conformance.outcomes import STORED, limit_if, require, require_close, skip_if
from qkv.scripts.conformance.subject import Subject

FORMS = (("one file", "5GB", torch.float32), ("shards", "30KB", torch.float32), ("bfloat16", "5GB", torch.bfloat16))
LOADED_LOGITS = 1e-5  # equal weights in other memory move the last bits alone
# A file's header and the bytes of buffers, beside four bytes for each weight.
HEADER = 40_000
NEW_TOKENS = 7


def reload(subject: Subject) -> None:
    """Check that one file, shards and bfloat16 load with the same weights, buffers and outputs, and without pickle."""
    inputs, model = subject.batch(), subject.fresh()
    for name, size, dtype in FORMS:
        with saved(model, small_shards(model) if name == "shards" else size) as folder:
            files = [path.name for path in folder.iterdir()]
            loaded, info = subject.cls.from_pretrained(folder, dtype=dtype, output_loading_info=True)
        pickles = [file for file in files if file.endswith((".bin", ".pt", ".pkl"))]
        lost = pickles + [f"{key} {info[key]}" for key in ("missing_keys", "unexpected_keys") if info[key]]
        require(not lost, f"{name}: {', '.join(lost)}")
        have = tensors(loaded)
        for key, value in tensors(model).items():
            require(key in have and not have[key].is_meta, f"{name}: {key} is gone, or on meta")
            require_close(value.to(have[key].dtype), have[key], f"{name}: {key} after loading", STORED)
        if dtype is torch.float32:
            got = subject.logits(loaded.eval(), inputs)
            require_close(subject.logits(model, inputs), got, f"logits, {name}", LOADED_LOGITS)


def small_shards(model: nn.Module) -> str:
    """Return a size that splits the weights into a few files."""
    size = sum(weight.numel() for weight in model.parameters()) * 4
    return f"{max(size // 4000, 30)}KB"


def tables(model: Any) -> tuple[Any, Any]:
    """Return the weights of the output layer and of the input embeddings."""
    output, table = model.get_output_embeddings(), model.get_input_embeddings()
    return getattr(output, "weight", None), getattr(table, "weight", None)


def tied(subject: Subject) -> None:
    """Check that tied tables are one tensor in memory and on disk, and that untied ones stay two."""
    output, table = tables(subject.model)
    apart = output is None or table is None or output.shape != table.shape
    skip_if(apart, "no output table of the input's shape")
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
        require(not tie or size <= stored + 2 * table.numel() + HEADER, "the table is saved twice")


def resize(subject: Subject) -> None:
    """Check that resize_token_embeddings keeps the old logits, and survives saving with its configuration."""
    skip_if(subject.model.get_output_embeddings() is None, "no output table")
    size, model, inputs = subject.text.vocab_size + NEW_TOKENS, subject.fresh(), subject.batch()
    before = subject.logits(model, inputs)
    model.resize_token_embeddings(size, mean_resizing=False)
    after, told = subject.logits(model, inputs), model.config.get_text_config(decoder=True).vocab_size
    counts = f"{size} tokens asked, {after.shape[-1]} logits, vocab_size {told}"
    require((after.shape[-1], told) == (size, size), counts)
    require_close(before, after[..., :-NEW_TOKENS], "logits of the old tokens")
    require_close(after, subject.logits(reloaded(subject, model), inputs), "resized, saved and loaded")
    if "labels" in subject.names:
        newest = torch.full_like(inputs[subject.stream], size - 1)
        loss = subject.run(model, source_of(inputs), labels=newest).loss
        require(loss is None or loss.isfinite(), "the loss of a new token is not finite")


def config(subject: Subject) -> None:
    """Check that every field of the configuration survives its file, and that it builds the same model."""
    with tempfile.TemporaryDirectory() as folder:
        subject.config.save_pretrained(folder)
        again = type(subject.config).from_pretrained(folder)
    before, after = (json.loads(each.to_json_string(use_diff=False)) for each in (subject.config, again))
    ignored = {"transformers_version", "_name_or_path"}
    changed = [key for key in sorted((before.keys() | after.keys()) - ignored) if before.get(key) != after.get(key)]
    fields = ", ".join(f"{key} {before.get(key)!r} -> {after.get(key)!r}" for key in changed[:3])
    require(not changed, f"fields change: {fields}")
    built = subject.logits(subject.fresh(config=again), subject.batch())
    require_close(subject.logits(subject.model, subject.batch()), built, "built from the file")
