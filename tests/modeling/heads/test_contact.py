"""Contacts are scored as the papers say, for the residues of each row alone."""

import torch

import reference
from comparison import assert_same, draw, encoder, jittered
from qkv.modeling.heads.contact import AttentionContactHead, OuterProductContactHead, find_residues, select_pairs

MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0]])
# The tokens between the first and the last real one of each row.
RESIDUES = [[1, 2, 3, 4], [1, 2], [2, 3, 4], []]


def test_residues_stand_between_the_first_and_the_last_token():
    residues, places = find_residues(MASK, draw(4, 6, 2))
    assert [row.nonzero().flatten().tolist() for row in residues] == RESIDUES
    assert [row[: len(known)].tolist() for row, known in zip(places, RESIDUES, strict=True)] == RESIDUES
    assert places.shape == (4, 4) and not residues.gather(1, places)[1, 2:].any()
    prefixed = torch.nn.functional.pad(MASK, (2, 0), value=1)
    assert torch.equal(find_residues(prefixed, draw(4, 6, 2))[0], residues)
    residues, places = find_residues(None, draw(2, 4, 2))
    assert residues.tolist() == [[False, True, True, False]] * 2 and places.tolist() == [[1, 2]] * 2
    assert find_residues(None, draw(2, 1, 2))[1].shape == (2, 0)


def test_pairs_are_selected_by_row_and_column():
    pairs, places = draw(2, 4, 4), torch.tensor([[1, 2], [2, 3]])
    assert_same(select_pairs(pairs, places), torch.stack([pairs[0, 1:3, 1:3], pairs[1, 2:, 2:]]), pairs)


def test_attention_head():
    head = jittered(AttentionContactHead(encoder(num_hidden_layers=2, num_attention_heads=3, head_dim=2)))
    attentions = [draw(4, 3, 6, 6).detach().softmax(-1).requires_grad_() for _ in range(2)]
    residues, _ = find_residues(MASK, draw(4, 6, 2))
    scores = head(None, tuple(attentions), residues)
    for row, kept in enumerate(RESIDUES[:3]):
        maps = torch.cat([each[row][:, kept][:, :, kept] for each in attentions])
        expected = reference.attention_contacts(maps, head.regression.weight[0], head.regression.bias[0])
        assert_same(scores[row][kept][:, kept], expected, *attentions, *head.parameters())
    prefixed = [torch.nn.functional.pad(each, (2, 0), value=0.5) for each in attentions]
    assert_same(head(None, tuple(prefixed), residues), scores)
    # A row without residues has nothing to correct, and spoils no gradient.
    assert scores[3].isfinite().all()
    assert all(each.isfinite().all() for each in torch.autograd.grad(scores.sum(), attentions))


def test_outer_product_head_says_the_same_of_a_pair_in_both_orders():
    head, hidden = jittered(OuterProductContactHead(encoder())), draw(2, 5, 6)
    once = head.pairs(hidden)[..., 0]
    assert_same(head(hidden, None, None), once + once.mT, hidden, *head.parameters())
