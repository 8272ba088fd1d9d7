"""Is the loss of CTC the sum over all alignments, the same however a batch is cut, and its reading the best one?"""

from typing import Any

import pytest
import torch
from torch import Tensor

import reference
import tiny
from qkv.modeling import QkvAudioEncoderForCTC
from qkv.modeling.heads.loss import ctc_loss

BLANK = 1


def hearing(**fields: Any) -> QkvAudioEncoderForCTC:
    torch.manual_seed(0)
    return tiny.jitter(QkvAudioEncoderForCTC(tiny.audio_encoder(**fields))).eval()


def test_the_loss_is_that_of_all_alignments() -> None:
    scores = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    words, lengths = [[2, 3], [4, 4], [0]], [4, 3, 2]
    expected = sum(
        reference.ctc_loss(row[:length], said, BLANK) for row, said, length in zip(scores, words, lengths, strict=True)
    )
    labels = torch.tensor([[2, 3], [4, 4], [0, -100]])
    found = ctc_loss(scores, labels, torch.tensor(lengths), tiny.audio_encoder(vocab_size=5, eos_token_id=3))
    assert abs(found - expected / 5) < 1e-12
    mine, theirs = (torch.autograd.grad(loss, scores, retain_graph=True)[0] for loss in (found, expected / 5))
    assert (mine - theirs).abs().max() < 1e-12


def test_without_labels_there_is_no_loss_and_without_words_it_is_that_of_silence() -> None:
    model, sound = hearing(), tiny.audio(9)
    assert model(**sound).loss is None
    logits = model(**sound).logits
    silent = model(**sound, labels=torch.full((2, 1), -100)).loss
    blanks = -logits.log_softmax(-1)[..., BLANK]
    assert silent.item() == pytest.approx((blanks[0].sum() + blanks[1, :7].sum()).item(), rel=1e-5)


def parts(inputs: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    return [{name: value[row : row + 1] for name, value in inputs.items()} for row in range(2)]


def test_parts_add_up_to_one_big_batch() -> None:
    model, inputs = hearing(), tiny.audio_with_labels()
    whole = model(**inputs).loss
    whole.backward()
    expected = {name: value.grad.clone() for name, value in model.named_parameters()}
    model.zero_grad()
    count = (inputs["labels"] != -100).sum()
    losses = [model(**part, num_items_in_batch=count).loss for part in parts(inputs)]
    sum(losses).backward()
    assert sum(losses).item() == pytest.approx(whole.item(), rel=1e-5)
    for name, value in model.named_parameters():
        torch.testing.assert_close(value.grad, expected[name], rtol=1e-4, atol=1e-6, msg=name)


def test_a_row_alone_has_the_scores_it_has_in_a_batch() -> None:
    model, sound = hearing(), tiny.audio(9)
    together = model(**sound).logits
    for row, length in enumerate(sound["attention_mask"].sum(-1).tolist()):
        alone = model(sound["input_features"][row : row + 1, :length]).logits[0]
        torch.testing.assert_close(together[row, : len(alone)], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_it_learns_what_is_said() -> None:
    torch.manual_seed(0)
    model, inputs = (
        QkvAudioEncoderForCTC(tiny.audio_encoder(apply_spec_augment=False)).train(),
        tiny.audio_with_labels(),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(120):
        optimizer.zero_grad()
        model(**inputs).loss.backward()
        optimizer.step()
    best = model.eval()(**inputs).logits.argmax(-1)
    read = [[label for label in row.unique_consecutive().tolist() if label != BLANK] for row in best]
    assert read == [[7, 7, 9, 30], [5, 60]]


def test_embeddings_may_be_given_for_sound() -> None:
    model, inputs = hearing(), tiny.audio_with_labels()
    embedded, mask, _ = model.model.embed_tokens(inputs["input_features"], inputs["attention_mask"])
    given = model(inputs_embeds=embedded, attention_mask=mask, labels=inputs["labels"])
    expected = model(**inputs)
    assert torch.equal(given.logits, expected.logits) and torch.equal(given.loss, expected.loss)
