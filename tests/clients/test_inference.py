"""Programs that use a model as it is: attribution, drawings, evaluation, pages, weights of few bits."""

import copy
import json
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import client_models as models
import pytest
import torch
from client_models import installed, program
from torch import Tensor
from torch.testing import assert_close
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BitsAndBytesConfig,
    PreTrainedModel,
    TorchAoConfig,
    pipeline,
)

import tiny

os.environ.update(GRADIO_ANALYTICS_ENABLED="False", NO_PROXY="127.0.0.1,localhost")  # read on import

PROGRAMS: list[models.Program] = []
enter = partial(program, PROGRAMS)
CLASSIFIERS = dict.fromkeys(("bert", "llama"), AutoModelForSequenceClassification)
IDS, TARGETS = torch.arange(10, 18)[None], torch.arange(20, 26)[None]


@enter("captum", "integrated gradients of tokens", CLASSIFIERS, rtol=1e-3, num_labels=3)
def attribute_tokens(model: PreTrainedModel, folder: Path) -> Tensor:
    ids = tiny.text(batch=2, length=9)["input_ids"].clamp(min=4)
    read = installed("captum.attr").LayerIntegratedGradients(
        lambda ids: model(ids).logits[:, 0], model.get_input_embeddings()
    )
    found, rest = read.attribute(ids, torch.ones_like(ids) * 4, return_convergence_delta=True, n_steps=200)
    assert rest.abs().max() < 0.05 * found.sum((1, 2)).abs().max() + 0.01
    return found


@enter("captum", "saliency of pixels", {"vit": AutoModelForImageClassification}, num_labels=3)
def attribute_pixels(model: PreTrainedModel, folder: Path) -> Tensor:
    images = tiny.images(size=(16, 16))["pixel_values"]
    return installed("captum.attr").Saliency(lambda pixels: model(pixels).logits).attribute(images, target=1)


def drawn(view: str, **given: Any) -> list[Tensor]:
    """The numbers that a page of BertViz draws; they stand in its script."""
    page = getattr(installed("bertviz"), view)(**given, html_action="return").data
    (parameters,) = re.findall(r"const params = (\{.*\});", page)
    return [torch.tensor(each["attn"]) for each in json.loads(parameters)["attention"]]


@torch.no_grad()
def draw(view: str, model: PreTrainedModel, folder: Path) -> list[Tensor]:
    attention = model(IDS, output_attentions=True).attentions
    found = drawn(view, attention=attention, tokens=[models.LETTERS[index] for index in IDS[0].tolist()])
    assert_close(found[0], torch.cat(attention))
    return found


@torch.no_grad()
def draw_both_sides(view: str, model: PreTrainedModel, folder: Path) -> list[Tensor]:
    outputs = model(input_ids=IDS, decoder_input_ids=TARGETS, output_attentions=True)
    sides = {f"{side}_attention": outputs[f"{side}_attentions"] for side in ("encoder", "decoder", "cross")}
    names = (("encoder", IDS), ("decoder", TARGETS))
    tokens = {f"{side}_tokens": [models.LETTERS[index] for index in ids[0].tolist()] for side, ids in names}
    found = drawn(view, **sides, **tokens)
    for drawing, attention in zip(found, sides.values(), strict=True):
        assert_close(drawing, torch.cat(attention))
    return found


for view in ("head_view", "model_view"):
    eager = {"attn_implementation": "eager"}
    enter("BertViz", view, dict.fromkeys(("bert", "gpt2", "llama"), AutoModel), **eager)(partial(draw, view))
    both_sides = partial(draw_both_sides, view)
    enter("BertViz", f"{view} of both sides", dict.fromkeys(("t5", "bart"), AutoModel), **eager)(both_sides)


PROMPT = torch.arange(10, 22).repeat(2)[None]
SETTINGS = {"max_new_tokens": 16, "min_new_tokens": 16, "do_sample": False, "pad_token_id": 1}
TEXTS = ["one", "a dog", "what is 1 + 2?", "three.", "zebra", "x"]
PAIRS = [("what is 1 + 2?", " 3"), ("a", "bc"), ("which letter is next: x, y,", " z.")]


@torch.no_grad()
def own_score(model: PreTrainedModel, context: str, target: str) -> float:
    tokenizer = models.tokenizer()
    ids = torch.tensor([tokenizer(context + target)["input_ids"]])
    start = len(tokenizer(context)["input_ids"])
    scores = model(ids).logits.log_softmax(-1)[0, start - 1 : -1]
    return scores.gather(1, ids[0, start:, None]).sum().item()


def scored(batch: int, model: PreTrainedModel, folder: Path) -> list[float]:
    """The scores and texts of the evaluation harness of EleutherAI."""
    harness, instance = installed("lm_eval.models.huggingface"), installed("lm_eval.api.instance")

    def requests(kind: str, arguments: list[tuple[object, ...]]) -> list[object]:
        return [instance.Instance(kind, {}, given, index) for index, given in enumerate(arguments)]

    read = harness.HFLM(model, tokenizer=models.tokenizer(), batch_size=batch, device="cpu", max_length=40)
    found = read.loglikelihood(requests("loglikelihood", PAIRS), disable_tqdm=True)
    assert_close([score for score, _ in found], [own_score(model, *pair) for pair in PAIRS], rtol=1e-5, atol=1e-5)
    options = {"until": ["."], "max_gen_toks": 6, "do_sample": False}
    asked = requests("generate_until", [(pair[0], options) for pair in PAIRS])
    texts = read.generate_until(asked, disable_tqdm=True)
    return [*(score for score, _ in found), *(float(ord(letter)) for text in texts for letter in text)]


for batch in (1, 3):
    kinds = dict.fromkeys(("llama", "gpt2", "bloom"), AutoModelForCausalLM)
    enter("lm-eval", f"scores and texts, batch {batch}", kinds)(partial(scored, batch))


TASKS: dict[str, dict[str, Any]] = {
    "text-classification": {"top_k": None},
    "text-generation": {"max_new_tokens": 6, "do_sample": False, "return_full_text": False},
}


def served(task: str, model: PreTrainedModel, folder: Path) -> list[float]:
    """The answer of a page of Gradio around a pipeline, over HTTP."""
    gradio, clients = installed("gradio"), installed("gradio_client")
    predict = pipeline(task, model=model, tokenizer=models.tokenizer(), device="cpu", **TASKS[task])

    def answer(text: str) -> Any:
        (found,) = predict(text)
        return {each["label"]: each["score"] for each in found} if "class" in task else found["generated_text"]

    page = gradio.Interface(answer, "text", "label" if "class" in task else "text", api_name="predict")
    _, address, _ = page.launch(server_name="127.0.0.1", prevent_thread_lock=True, quiet=True, share=False)
    try:
        found = clients.Client(address, verbose=False).predict(TEXTS[2], api_name="/predict")
    finally:
        page.close(verbose=False)
    if task == "text-generation":
        assert found == answer(TEXTS[2])
        return [float(ord(letter)) for letter in found]
    scores = {each["label"]: each["confidence"] for each in found["confidences"]}
    assert scores == pytest.approx(answer(TEXTS[2]), abs=1e-6)
    return [scores[label] for label in sorted(scores)]


enter("Gradio", "text-generation", {"llama": AutoModelForCausalLM})(partial(served, "text-generation"))
classifying = partial(served, "text-classification")
enter("Gradio", "text-classification", {"llama": AutoModelForSequenceClassification}, num_labels=3)(classifying)


def weights() -> dict[str, Any]:
    """Weights of few bits, as users of transformers ask for them."""
    quantization = installed("torchao.quantization")
    by_groups = quantization.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=quantization.PerGroup(16))
    four = {"load_in_4bit": True}
    return {
        "torchao, int8": TorchAoConfig(quantization.Int8WeightOnlyConfig()),
        "torchao, int4": TorchAoConfig(by_groups),
        "bitsandbytes, int8": BitsAndBytesConfig(load_in_8bit=True),
        "bitsandbytes, nf4": BitsAndBytesConfig(**four, bnb_4bit_quant_type="nf4"),
        "bitsandbytes, fp4, scales of scales": BitsAndBytesConfig(
            **four, bnb_4bit_quant_type="fp4", bnb_4bit_use_double_quant=True
        ),
    }


@torch.no_grad()
def logits(model: PreTrainedModel) -> Tensor:
    ids = torch.arange(10, 34).view(3, 8)
    given: dict[str, Any] = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    return model(input_ids=ids, **given).logits


def quantized(name: str, model: PreTrainedModel, folder: Path) -> tuple[Tensor, Tensor | None]:
    path, settings = models.saved(model, folder), copy.deepcopy(weights()[name])
    found = type(model).from_pretrained(path, quantization_config=settings, dtype=torch.float32)
    assert (logits(found) - logits(model)).abs().max() > 1e-5
    found.save_pretrained(path / "again")
    again = type(model).from_pretrained(path / "again")
    assert torch.equal(logits(again), logits(found))
    if not model.can_generate():
        return logits(found), None
    texts = [each.generate(PROMPT[:, :8], **{**SETTINGS, "max_new_tokens": 16}, num_beams=1) for each in (found, again)]
    assert torch.equal(*texts)
    return logits(found), texts[0]


# Blocks of 64 weights, in which bitsandbytes stores them, have to fill the rows.
WIDE = {"hidden_size": 64, "intermediate_size": 128}
for name in (
    "torchao, int8",
    "torchao, int4",
    "bitsandbytes, int8",
    "bitsandbytes, nf4",
    "bitsandbytes, fp4, scales of scales",
):
    library, _, bits = name.partition(", ")
    use, what = partial(quantized, name), f"{bits} weights, saved and loaded"
    enter(library, what, {"llama": AutoModelForCausalLM, "bert": AutoModelForMaskedLM}, **WIDE)(use)
    enter(library, what, {"bart": AutoModelForSeq2SeqLM}, d_model=64, encoder_ffn_dim=128, decoder_ffn_dim=128)(use)


@enter("generate", "a stream of tokens", dict.fromkeys(("llama", "gpt2", "bloom"), AutoModelForCausalLM))
def stream(model: PreTrainedModel, folder: Path) -> list[int]:
    streamer = Mock()
    text = model.generate(IDS, streamer=streamer, max_new_tokens=16, min_new_tokens=16, do_sample=False, pad_token_id=1)
    streamed = torch.cat([call.args[0].flatten() for call in streamer.put.call_args_list])
    assert torch.equal(streamed, text[0]) and streamer.end.call_count == 1
    return streamed.tolist()


@pytest.mark.parametrize("each", PROGRAMS, ids=str)
@pytest.mark.costly(12)
def test_program(each: models.Program, tmp_path: Path, side_by_side: Callable[..., None]) -> None:
    models.run(each, tmp_path, side_by_side)
