"""The loss of CTC is the sum over all alignments; embeddings may stand for frames."""

from typing import Any

import pytest
import torch

import reference
import tiny
from qkv.modeling import QkvAudioEncoderForCTC
from qkv.modeling.heads.loss import ctc_loss

BLANK = 1


def ctc_model(**fields: Any) -> QkvAudioEncoderForCTC:
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
    model, sound = ctc_model(), tiny.audio(9)
    assert model(**sound).loss is None
    logits = model(**sound).logits
    silent = model(**sound, labels=torch.full((2, 1), -100)).loss
    blanks = -logits.log_softmax(-1)[..., BLANK]
    assert silent.item() == pytest.approx((blanks[0].sum() + blanks[1, :7].sum()).item(), rel=1e-5)


def test_embeddings_may_be_given_for_sound() -> None:
    model, inputs = ctc_model(), tiny.audio_with_labels()
    embedded, mask, _ = model.model.embed_tokens(inputs["input_features"], inputs["attention_mask"])
    given = model(inputs_embeds=embedded, attention_mask=mask, labels=inputs["labels"])
    expected = model(**inputs)
    assert torch.equal(given.logits, expected.logits) and torch.equal(given.loss, expected.loss)


@pytest.mark.slow
@torch.no_grad()
def test_it_is_exported_for_any_batch_and_length() -> None:
    model = QkvAudioEncoderForCTC(tiny.audio_encoder(num_hidden_layers=1)).eval()
    given, more = tiny.audio(), tiny.audio(tiny.SOURCE + 2, batch=3)
    shapes = {name: {0: torch.export.Dim("batch", min=2, max=9), 1: torch.export.Dim.AUTO} for name in given}
    program = torch.export.export(model, (), given, dynamic_shapes=shapes).module()
    torch.testing.assert_close(program(**more).logits, model(**more).logits, rtol=1e-5, atol=1e-5)
