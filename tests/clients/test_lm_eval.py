"""The evaluation harness of EleutherAI scores and continues texts as the model itself does."""

from collections.abc import Callable

import client_models as models
import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, PreTrainedModel

harness = pytest.importorskip("lm_eval.models.huggingface", reason="`make clients` installs it", exc_type=ImportError)
instance = pytest.importorskip("lm_eval.api.instance", exc_type=ImportError)
PAIRS = [("what is 1 + 2?", " 3"), ("a", "bc"), ("which letter is next: x, y,", " z.")]


def requests(kind: str, arguments: list[tuple[object, ...]]) -> list[object]:
    return [instance.Instance(kind, {}, given, index) for index, given in enumerate(arguments)]


@torch.no_grad()
def own_score(model: PreTrainedModel, context: str, target: str) -> float:
    tokenizer = models.tokenizer()
    ids = torch.tensor([tokenizer(context + target)["input_ids"]])
    start = len(tokenizer(context)["input_ids"])
    scores = model(ids).logits.log_softmax(-1)[0, start - 1 : -1]
    return scores.gather(1, ids[0, start:, None]).sum().item()


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bloom"])
@pytest.mark.parametrize("batch", [1, 3])
def test_scores_and_texts(kind: str, batch: int, side_by_side: Callable[..., None]) -> None:
    def evaluate(model: PreTrainedModel) -> list[float]:
        read = harness.HFLM(model, tokenizer=models.tokenizer(), batch_size=batch, device="cpu", max_length=40)
        scored = read.loglikelihood(requests("loglikelihood", PAIRS), disable_tqdm=True)
        assert_close([score for score, _ in scored], [own_score(model, *pair) for pair in PAIRS], rtol=1e-5, atol=1e-5)
        options = {"until": ["."], "max_gen_toks": 6, "do_sample": False}
        texts = read.generate_until(
            requests("generate_until", [(pair[0], options) for pair in PAIRS]), disable_tqdm=True
        )
        return [*(score for score, _ in scored), *(float(ord(letter)) for text in texts for letter in text)]

    side_by_side("lm-eval", f"scores and texts, batch {batch}", evaluate, *models.both(kind, AutoModelForCausalLM))
