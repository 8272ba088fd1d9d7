"""Of models of pairs, residue by residue: the attention of its pairs and of the sequences that are aligned at it."""

from typing import Any

import torch

import qkv
import tiny
from errors import raises_sentence

STACKS = ("encoder", "column", "starting", "ending")


def model_of(kind: str, **fields: Any) -> Any:
    torch.manual_seed(0)
    return tiny.jitter(qkv.QkvPairModel(tiny.pair(kind, **fields))).eval()


@torch.no_grad()
def test_of_one_residue_pairs_and_sequences_are_shown() -> None:
    model, inputs, row, residue = model_of("evoformer", num_recycles=1, chunk_size=4), tiny.alignment(), 1, 2
    with qkv.capture_attention(model, inputs, layers=dict.fromkeys(STACKS)) as captured:
        pass
    view = qkv.attend(model, inputs, row=row, residue=residue, layers=[1])
    shown = {stack.name: stack for stack in view.stacks}
    assert list(shown) == ["encoder", *(f"{name}, residue 2" for name in ("column", "starting", "ending"))]
    length, sequences = (int(inputs[name][row].sum()) for name in ("attention_mask", "msa_attention_mask"))
    for name, count in {"column": 1 + sequences, "starting": length, "ending": length}.items():
        stack = shown[f"{name}, residue 2"]
        weights = captured.select(name, 1)[-1].weights.unflatten(0, (tiny.BATCH, tiny.LENGTH))[row, residue]
        torch.testing.assert_close(torch.from_numpy(stack.weights[0]), weights[:, :count, :count], rtol=1e-5, atol=1e-6)
    assert shown["column, residue 2"].keys.labels == ["chain", "sequence 1", "sequence 2"]
    labels = [str(number) for number in inputs["input_ids"][row, :length].tolist()]
    assert shown["ending, residue 2"].queries.labels == labels
    only = qkv.attend(model, inputs, residue=0, layers={"starting": 0}, heads=[1]).stacks
    assert [(stack.name, stack.layers, stack.heads) for stack in only] == [("starting, residue 0", [0], [1])]
    assert "starting, residue 2" in view.page()[0]


def test_residues_and_stacks_that_are_not_there_are_named() -> None:
    model = model_of("esmfold")
    with raises_sentence("'starting'", "residue="):
        qkv.attend(model, tiny.text(), layers={"starting": 0})
    with raises_sentence("residue=9", "0 to 8"):
        qkv.attend(model, tiny.text(), residue=9)
    with raises_sentence("residue=0", "QkvEncoderModel"):
        qkv.attend(qkv.QkvEncoderModel(tiny.encoder()), tiny.text(), residue=0)
