"""Promises of ours beyond `qkv conform`, which `scripts/conformance/test_families.py` runs, for every family and head."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from torch.testing import assert_close
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, EncoderDecoderCache

import qkv
import tiny
from errors import raises_sentence
from sampling import drawn, sampled
from tiny import CASES, HEADS, Case

pytestmark = pytest.mark.upstream

each_case = drawn(CASES, 10)
each_head = drawn(HEADS, 6)
CONFIGS = [
    *(tiny.encoder, tiny.image_encoder, tiny.audio_encoder, tiny.text_encoder, tiny.decoder, tiny.encoder_decoder),
    *(tiny.speech_encoder_decoder, tiny.recurrent, tiny.dual_encoder, tiny.detector, tiny.pair, tiny.folding),
]
# Weights that sum to one: those of rotated features do not, and the delta rule has none (`test_recurrent_kernels.py`).
WITH_SOFTMAX = [
    case
    for case in CASES
    if case.model_class._supports_sdpa
    and getattr(case.config().get_text_config(decoder=True), "kernel", "softmax") == "softmax"
]
# An encoder-decoder's encoder alone reads a part of the others' weights: `test_modeling_encoder_decoder_heads.py`.
AUTO_CLASSES = [
    (make, name)
    for make in CONFIGS
    for name, target in make().auto_map.items()
    if name != "AutoConfig" and not target.endswith(".QkvEncoderDecoderEncoderModel")
]
# One row for each way in which a vocabulary appears in a model.
WITH_VOCABULARY = [
    # A language model beside it has a vocabulary of its own, which has a number for each token of ours.
    case
    for case in CASES
    if "input_ids" in case.inputs() and not case.name.endswith(("MultipleChoice-bert", "deep", "FoldingModel-esmfold"))
]


def named(case_name: str) -> Case:
    return next(case for case in CASES if case.name == case_name)


def numbers(output: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of an output by its path, those inside tuples and caches too."""
    if isinstance(output, EncoderDecoderCache):
        output = (output.self_attention_cache, output.cross_attention_cache)
    elif isinstance(output, Cache):
        output = [(layer.keys, layer.values) for layer in output.layers]
    if isinstance(output, Tensor):
        yield name, output
    elif isinstance(output, dict | tuple | list):
        for key, value in output.items() if isinstance(output, dict) else enumerate(output):
            yield from numbers(value, f"{name}.{key}")


def assert_same(actual: Any, expected: Any, **tolerance: Any) -> None:
    """Equal outputs: the same tensors at the same places, bit for bit unless a tolerance is given."""
    tolerance = tolerance or {"rtol": 0, "atol": 0}
    actual, expected = dict(numbers(actual)), dict(numbers(expected))
    assert actual.keys() == expected.keys() and actual
    for name, value in expected.items():
        assert_close(actual[name], value, **tolerance, msg=lambda text, name=name: f"{name}: {text}")


def run(model: PreTrainedModel, inputs: dict[str, Tensor], **options: Any) -> Any:
    with torch.no_grad():
        return model(**inputs, **options)


def assert_same_model(loaded: PreTrainedModel, model: PreTrainedModel, inputs: dict[str, Tensor]) -> None:
    """Every parameter and buffer is bit-equal, and so is every output."""
    assert type(loaded) is type(model)
    weights, expected = loaded.state_dict(), model.state_dict()
    assert weights.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(weights[name], expected[name])] == []
    # Copies lie alike in memory; a mapped file does not, which moves the last bit of a matrix product.
    assert_same(run(copy.deepcopy(loaded), inputs), run(copy.deepcopy(model), inputs))


def ties(model: PreTrainedModel) -> set[frozenset[str]]:
    """Sets of names that are one and the same parameter."""
    names: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), set()).add(name)
    return {frozenset(group) for group in names.values() if len(group) > 1}


def test_unwritten_memory_is_poisoned() -> None:
    # What every other loading test stands on.
    assert torch.empty(3, 3).isnan().all() and torch.empty_like(torch.ones(2)).isnan().all()


# Saving and loading ---------------------------------------------------------------------------------------------------


@each_case
@pytest.mark.costly(5)
def test_save_and_load_is_bit_equal(case: Case, tmp_path: Path) -> None:
    model = case.build()
    model.save_pretrained(tmp_path)
    loaded, report = case.model_class.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    code = {".json", ".py", ""}
    assert [path.name for path in tmp_path.iterdir() if path.suffix not in code] == ["model.safetensors"]
    assert_same_model(loaded, model, case.inputs())
    assert ties(loaded) == ties(model)
    automatic = getattr(transformers, case.auto_class).from_pretrained(tmp_path)
    assert_same_model(automatic, model, case.inputs())
    saved, named = json.loads((tmp_path / "config.json").read_text()), type(model.config).auto_classes
    assert saved["architectures"] == [case.model_class.__name__]
    home = named["AutoModel"].partition(".")[0]
    own = {case.auto_class: f"{home}.{case.model_class.__name__}"}
    if case.model_class is qkv.QkvEncoderDecoderEncoderModel:
        own["AutoModel"] = own[case.auto_class]
    assert saved["auto_map"] == {**named, **own}


@each_case
def test_nothing_lives_in_a_buffer(case: Case) -> None:
    model = case.build()
    # Only what a backbone of transformers has measured, and that is in every checkpoint.
    buffers = {name for name, _ in model.named_buffers()}
    assert buffers <= model.state_dict().keys() and not [name for name in buffers if ".backbone." not in name]
    loose = {
        f"{name}.{key}"
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, Tensor)
    }
    assert loose == set()


@each_case
def test_weights_that_a_checkpoint_lacks_are_initialised(case: Case) -> None:
    # from_pretrained builds on the meta device: what `_init_weights` forgets stays NaN.
    torch.manual_seed(0)
    fresh = case.model_class(case.config()).state_dict()
    torch.manual_seed(0)
    loaded = case.model_class.from_pretrained(None, config=case.config(), state_dict={}).state_dict()
    for name, expected in fresh.items():
        value = loaded[name]
        assert value.isfinite().all(), name
        if expected.std(correction=0) == 0:  # gains and biases
            assert torch.equal(value, expected), name
        else:
            assert value.std() > 0, name
            # Six standard errors of the difference of two samples, for there are thousands of tensors.
            assert_close(value.std(), expected.std(), rtol=6 * value.numel() ** -0.5, atol=0, msg=name)


@each_head
def test_bfloat16_and_mixed_precision(case: Case, tmp_path: Path) -> None:
    model = case.build()
    model.save_pretrained(tmp_path)
    loaded = case.model_class.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert loaded.dtype == torch.bfloat16 and {value.dtype for value in loaded.parameters()} == {torch.bfloat16}
    assert ties(loaded) == ties(model) == ties(model.to(torch.bfloat16))
    assert_same_model(loaded, model, case.inputs())
    precise = run(case.model_class.from_pretrained(tmp_path, dtype=torch.float32), case.inputs())
    with torch.autocast("cpu", torch.bfloat16):
        mixed = run(model.float(), case.inputs())
    for output in (run(loaded, case.inputs()), mixed):
        assert all(value.isfinite().all() for _, value in numbers(output))
        if "loss" in output:
            assert output.loss.dtype == torch.float32  # a sum of many terms needs the digits
            assert_close(output.loss, precise.loss, rtol=0.05, atol=0)


@each_head
def test_offloaded_layers_compute_the_same(case: Case, tmp_path: Path) -> None:
    # Weights of one layer stay on disk and travel in for each forward: no module may hold on to a tensor.
    model = case.build()
    model.save_pretrained(tmp_path)
    places = dict(place(model, "", model))
    places[[name for name, module in model.named_modules() if is_layer(module, model)][-1]] = "disk"
    loaded = case.model_class.from_pretrained(tmp_path, device_map=places, offload_folder=tmp_path / "offload")
    assert any(value.device.type == "meta" for value in loaded.parameters())
    assert_same(run(loaded, case.inputs()), run(model, case.inputs()), rtol=1e-5, atol=1e-5)


def is_layer(module: torch.nn.Module, model: PreTrainedModel) -> bool:
    return type(module).__name__ in model._no_split_modules


def place(module: torch.nn.Module, name: str, model: PreTrainedModel) -> Iterator[tuple[str, str]]:
    """A row for each layer, for each largest module beside the layers, and for a parameter beside modules."""
    if is_layer(module, model) or not any(is_layer(part, model) for part in module.modules()):
        yield name, "cpu"
    else:
        yield from ((f"{name}.{own}".strip("."), "cpu") for own, _ in module.named_parameters(recurse=False))
        for child_name, child in module.named_children():
            yield from place(child, f"{name}.{child_name}".strip("."), model)


# Auto classes, and one checkpoint for every head ----------------------------------------------------------------------


def is_read(key: str, prefix: str, head: PreTrainedModel) -> bool:
    """Whether a model has a parameter of its base: of pairs it may lack the last update and the norm that it never reads."""
    if head.config.model_type != "qkv_pair" or prefix + key in head.state_dict():
        return True
    return not key.startswith((f"blocks.{head.config.num_hidden_layers - 1}.", "norm.", "pair_norm."))


@pytest.mark.parametrize(
    ("make", "auto_class"), sampled(AUTO_CLASSES, 5), ids=lambda value: getattr(value, "__name__", value)
)
def test_base_and_head_read_each_other(make: Any, auto_class: str, tmp_path: Path) -> None:
    automatic, config = getattr(transformers, auto_class), make()
    base = tiny.jitter(transformers.AutoModel.from_config(config))
    base.save_pretrained(tmp_path / "base")
    head, report = automatic.from_pretrained(tmp_path / "base", output_loading_info=True)
    prefix, weights = "" if type(head) is type(base) else "model.", head.state_dict()
    assert [key for key in report["missing_keys"] if key.startswith(prefix or "-") and "mask_token" not in key] == []
    # A head that does not pool has no pooler to fill, and one that reads no pairs no last update of them.
    read = {
        key: value for key, value in base.state_dict().items() if "pooler" not in key and is_read(key, prefix, head)
    }
    assert not [key for key in report["unexpected_keys"] if "pooler" not in key and is_read(key, prefix, head)]
    assert all(torch.equal(weights[prefix + key], value) for key, value in read.items())
    assert all(value.isfinite().all() for value in weights.values())
    tiny.jitter(head).save_pretrained(tmp_path / "head")
    back, report = transformers.AutoModel.from_pretrained(tmp_path / "head", output_loading_info=True)
    weights, loaded = head.state_dict(), back.state_dict()
    assert not [key for key in report["missing_keys"] if "pooler" not in key and is_read(key, prefix, head)]
    assert all(torch.equal(loaded[key], weights[prefix + key]) for key in read)
    assert all(value.isfinite().all() for value in loaded.values())


# Outputs --------------------------------------------------------------------------------------------------------------


@each_case
def test_tuple_and_dict_outputs_are_equal(case: Case) -> None:
    model, inputs = case.build(), case.inputs()
    for options in ({}, {"output_hidden_states": True, "output_attentions": case in WITH_SOFTMAX}):
        plain = run(model, inputs, return_dict=False, **options)
        assert isinstance(plain, tuple)
        assert_same(plain, run(model, inputs, **options).to_tuple())
    model.config.return_dict = False
    assert isinstance(run(model, inputs), tuple) and not isinstance(run(model, inputs, return_dict=True), tuple)


# What follows from attention whose weights no output has, SigLIP's pooling and ESMFold's language model.
ROUNDED = {"DualEncoderModel-siglip": "image_embeds|logits|vision_.*pooler", "FoldingModel-esmfold": "^(?!.loss)"}


@drawn(WITH_SOFTMAX, 8)
def test_states_and_attentions_are_real_whatever_the_backend(case: Case) -> None:
    """That they are those of each layer is compared with stock models in `test_parity.py`."""
    model, inputs = case.build(), case.inputs()
    model.set_attn_implementation("eager")
    plain = {name: value for name, value in numbers(run(model, inputs)) if "hidden_states" not in name}
    expected = run(model, inputs, output_attentions=True, output_hidden_states=True)
    for backend in ("sdpa", *(["flex_attention"] if model._supports_flex_attn else [])):
        model.set_attn_implementation(backend)
        found = run(model, inputs, output_attentions=True, output_hidden_states=True)
        actual, wanted = dict(numbers(found)), dict(numbers(expected))
        for name in [name for name in actual if re.search(ROUNDED.get(case.name, "$^"), name)]:
            assert_close(actual.pop(name), wanted.pop(name), rtol=1e-5, atol=1e-5)
        assert_same(actual, wanted)
    model.set_attn_implementation("eager")
    model.config.output_attentions = model.config.output_hidden_states = True
    assert_same(run(model, inputs), expected)
    found = dict(numbers(expected))
    assert_same({name: found[name] for name in plain}, plain, rtol=1e-5, atol=1e-5)
    weights = [value.sum(-1) for name, value in found.items() if "attentions" in name]
    assert_close(weights, [torch.ones_like(each) for each in weights])


# A chain is folded by its amino acids, which embeddings do not tell.
@drawn([case for case in CASES if "input_ids" in case.inputs() and not case.name.startswith("Folding")], 12)
def test_embeddings_may_be_given_for_ids(case: Case) -> None:
    model, inputs = case.build(), case.inputs()
    expected = run(model, inputs)
    ids = inputs.pop("input_ids")
    with torch.no_grad():
        embedded = model.get_input_embeddings()(ids)
        assert_same(run(model, inputs, inputs_embeds=embedded), expected)
        if "decoder_input_ids" in inputs:
            rest = {name: value for name, value in inputs.items() if name != "decoder_input_ids"}
            target = model.get_decoder().get_input_embeddings()(inputs["decoder_input_ids"])
            assert_same(model(**rest, inputs_embeds=embedded, decoder_inputs_embeds=target), expected)
    with raises_sentence("input_ids", "inputs_embeds"):
        run(model, inputs, input_ids=ids, inputs_embeds=embedded)


# Training -------------------------------------------------------------------------------------------------------------


def gradients(model: PreTrainedModel, inputs: dict[str, Tensor]) -> dict[str, Tensor | None]:
    """Gradients of the loss in training mode."""
    model.train()(**inputs).loss.backward()
    return {name: value.grad for name, value in model.named_parameters() if value.requires_grad}


@each_case
def test_every_parameter_takes_part_in_the_loss(case: Case) -> None:
    # Distributed training waits for every gradient: one that never comes is a crash.
    if "loss" in run(case.build(), case.inputs()):
        assert [name for name, value in gradients(case.build(), case.inputs()).items() if value is None] == []


# Ties and vocabularies ------------------------------------------------------------------------------------------------


SHARED = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}
OTHER_TIES = [
    ({"share_embeddings": False, "tie_word_embeddings": True}, {"model.decoder.embed_tokens.weight", "lm_head.weight"}),
    ({"share_embeddings": True, "tie_word_embeddings": False}, SHARED),
]


def test_tables_are_one_where_the_config_says_so() -> None:
    for case in WITH_VOCABULARY:
        model = case.build()
        head, target = model.get_output_embeddings(), model.get_input_embeddings()
        if model.config.is_encoder_decoder:
            source, target = target, model.get_decoder().get_input_embeddings()
            assert (source.weight is target.weight) == model.config.share_embeddings, case.name
        tied = getattr(model.config, "tie_word_embeddings", False)
        assert head is None or (head.weight is target.weight) == tied, case.name


def vocabulary_sizes(model: PreTrainedModel) -> set[int]:
    """Every place that states or embodies the size of the vocabulary."""
    config = model.config
    parts = [config, *(getattr(config, part) for part in config.sub_configs)]
    sizes = {part.vocab_size for part in parts if getattr(part, "frontend", "tokens") != "patches"}
    for name, module in model.named_modules():
        if name.endswith("embed_tokens") and hasattr(module, "num_embeddings"):  # patches have no vocabulary
            sizes |= {module.num_embeddings, len(module.weight)}
    head = model.get_output_embeddings()
    if head is not None:
        sizes |= {head.out_features, len(head.weight), *([] if head.bias is None else [len(head.bias)])}
    return sizes


@pytest.mark.parametrize(("size", "multiple", "expected"), [(40, None, 40), (62, 16, 64)])
@drawn(WITH_VOCABULARY, 6)
def test_vocabulary_can_be_resized(case: Case, size: int, multiple: int, expected: int, tmp_path: Path) -> None:
    check_resize(case, case.build(), (size, multiple, expected), tmp_path)


@pytest.mark.parametrize(("fields", "tied"), OTHER_TIES)
@pytest.mark.parametrize("size", [70, 40])
def test_each_tie_of_an_encoder_decoder_is_its_own_choice(fields: dict, tied: set, size: int, tmp_path: Path) -> None:
    case = named("EncoderDecoderForConditionalGeneration-bart")
    model = case.build(**fields)
    assert ties(model) == {frozenset(tied)}
    check_resize(case, model, (size, None, size), tmp_path)


def check_resize(case: Case, model: PreTrainedModel, sizes: tuple[int, int | None, int], folder: Path) -> None:
    size, multiple, expected = sizes
    inputs = {key: value.clamp(max=39) if value.dtype == torch.int64 else value for key, value in case.inputs().items()}
    before, tied, weights = run(model, inputs), ties(model), copy.deepcopy(model.state_dict())
    returned = model.resize_token_embeddings(size, pad_to_multiple_of=multiple)
    assert returned is model.get_input_embeddings()
    assert vocabulary_sizes(model) == {expected}
    assert ties(model) == tied
    kept = min(expected, tiny.VOCABULARY)
    for name, value in model.state_dict().items():
        vocabulary = weights[name].shape[:1] == (tiny.VOCABULARY,)
        assert torch.equal(*((each[:kept] if vocabulary else each) for each in (value, weights[name]))), name
        assert value.isfinite().all(), name
    after = run(model, inputs)
    for name in ("logits", "prediction_logits"):
        if name in after and before[name].shape[-1] == tiny.VOCABULARY:
            assert_close(after[name][..., :kept], before[name][..., :kept])
        elif name in after:
            assert_close(after[name], before[name])
    model.save_pretrained(folder)
    loaded, report = case.model_class.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    assert vocabulary_sizes(loaded) == {expected} and ties(loaded) == tied
    assert_same_model(loaded, model, inputs)
    ids = inputs["input_ids"]
    newest = {**inputs, "input_ids": ids.where(ids == tiny.END, expected - 1)}
    assert all(value.isfinite().all() for _, value in numbers(run(model, newest)))


# Images of other sizes -------------------------------------------------------------------------------------------------


IMAGES = [case.name for case in CASES if case.name.startswith("ImageEncoder")]


@pytest.mark.parametrize("size", [(12, 16), (20, 8), (16, 16), (4, 24)], ids=str)
@pytest.mark.parametrize("name", IMAGES)
def test_positions_are_resampled_to_images_of_another_size(name: str, size: tuple[int, int]) -> None:
    model = named(name).build()
    pixels = tiny.images(size=size)["pixel_values"]
    rows, columns = size[0] // 4, size[1] // 4
    output = run(model, {"pixel_values": pixels}, interpolate_pos_encoding=True, output_hidden_states=True)
    tokens = rows * columns + model.config.num_prefix_tokens
    assert output.hidden_states[-1].shape == (tiny.BATCH, tokens, model.config.hidden_size)
    if "reconstruction" in output:
        assert output.reconstruction.shape == pixels.shape
    if size == (12, 16):  # nothing to resample
        assert_same(output, run(model, {"pixel_values": pixels}, output_hidden_states=True))
    elif model.config.interpolate_positions:
        assert_same(output, run(model, {"pixel_values": pixels}, output_hidden_states=True))
        with raises_sentence("interpolate_pos_encoding=True"):
            run(model, {"pixel_values": pixels}, interpolate_pos_encoding=False)
    elif model.config.position == "learned":
        with raises_sentence(f"{size[0]}x{size[1]}", "image_size=[12, 16]", "interpolate_pos_encoding=True"):
            run(model, {"pixel_values": pixels})
