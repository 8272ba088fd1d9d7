"""Gradio serves a pipeline as a page, and answers its client."""

import os
from collections.abc import Callable
from typing import Any

import client_models as models
import pytest
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedModel, pipeline

os.environ.update(GRADIO_ANALYTICS_ENABLED="False", NO_PROXY="127.0.0.1,localhost")  # read on import
gradio = pytest.importorskip("gradio", reason="`make clients` installs it", exc_type=ImportError)
gradio_client = pytest.importorskip("gradio_client", reason="`make clients` installs it", exc_type=ImportError)

TEXT = "what is 1 + 2?"
TASKS = {"text-classification": AutoModelForSequenceClassification, "text-generation": AutoModelForCausalLM}
OPTIONS: dict[str, dict[str, Any]] = {
    "text-classification": {"top_k": None},
    "text-generation": {"max_new_tokens": 6, "do_sample": False, "return_full_text": False},
}


def asked(interface: Any) -> Any:
    """What a page answers over HTTP."""
    _, address, _ = interface.launch(server_name="127.0.0.1", prevent_thread_lock=True, quiet=True, share=False)
    try:
        return gradio_client.Client(address, verbose=False).predict(TEXT, api_name="/predict")
    finally:
        interface.close(verbose=False)


def around(predict: Any, task: str) -> Any:
    def answer(text: str) -> Any:
        (found,) = predict(text)
        return {each["label"]: each["score"] for each in found} if "class" in task else found["generated_text"]

    return gradio.Interface(answer, "text", "label" if "class" in task else "text", api_name="predict")


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("way", ["around a pipeline", "from_pipeline"])
def test_pages(task: str, way: str, side_by_side: Callable[..., None]) -> None:
    """`from_pipeline` asks transformers for pipelines that are no more."""

    def serve(model: PreTrainedModel) -> list[float]:
        predict = pipeline(task, model=model, tokenizer=models.tokenizer(), device="cpu", **OPTIONS[task])
        page = (
            around(predict, task)
            if way == "around a pipeline"
            else gradio.Interface.from_pipeline(predict, api_name="predict")
        )
        found, (own,) = asked(page), predict(TEXT)
        if task == "text-generation":
            assert found == own["generated_text"]
            return [float(ord(letter)) for letter in found]
        scores = {each["label"]: each["confidence"] for each in found["confidences"]}
        assert scores == pytest.approx({each["label"]: each["score"] for each in own}, abs=1e-6)
        return [scores[label] for label in sorted(scores)]

    both = models.both("llama", TASKS[task], **({"num_labels": 3} if "class" in task else {}))
    side_by_side("Gradio", f"{task}, {way}", serve, *both, refusable=way == "from_pipeline")
