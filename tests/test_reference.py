"""The patterns of the reference are those of the papers' pictures; what it computes, other tests compare.

Each formula equals the package where the package is tested, and the package equals torch and transformers in
`test_parity.py`; no checkpoint has these patterns.
"""

import torch

import reference


def test_patterns():
    picture = {
        "full": lambda q, k: reference.full(q, k),
        "causal": lambda q, k: reference.causal(q, k),
        "sliding": lambda q, k: reference.sliding(q, k, 2),
        "block_sparse": lambda q, k: reference.block_sparse(q, k, 2),
        "dilated": lambda q, k: reference.dilated(q, k, 2, 3),
        "strided": lambda q, k: reference.strided(q, k, 3),
        "fixed": lambda q, k: reference.fixed(q, k, 3, 1),
        "random": lambda q, k: reference.random(q, k, 1, 1, 4, False),
        "touches": lambda q, k: reference.touches(q, k, {2, 5}),
        "row": lambda q, k: reference.row(q, k, 1, 2),
        "column": lambda q, k: reference.column(q, k, 1, 2),
        "convolutional": lambda q, k: reference.convolutional(q, k, 1, 4, 3),
    }
    drawn = {
        name: ["".join("x" if visible(q, k) else "." for k in range(7)) for q in range(7)]
        for name, visible in picture.items()
    }
    assert drawn == {
        "full": ["xxxxxxx"] * 7,
        "causal": ["x......", "xx.....", "xxx....", "xxxx...", "xxxxx..", "xxxxxx.", "xxxxxxx"],
        "sliding": ["xx.....", "xxx....", ".xxx...", "..xxx..", "...xxx.", "....xxx", ".....xx"],
        "block_sparse": ["xxxxxxx", "xxxxxxx", "xxxxxx.", "xxxxxx.", "xxxxxxx", "xxxxxxx", "xx..xxx"],
        "dilated": ["x..x...", ".x..x..", "..x..x.", "x..x..x", ".x..x..", "..x..x.", "...x..x"],
        "strided": ["xxxx..x", "xxxxx..", "xxxxxx.", "xxxxxxx", ".xxxxxx", "..xxxxx", "x..xxxx"],
        "fixed": ["xxx..x.", "xxx..x.", "xxx..x.", "..xxxx.", "..xxxx.", "..xxxx.", "..x..xx"],
        "random": ["xxxxxxx", "xxxx...", "xxxxx..", "xxxxx..", "x..xxx.", "x...xxx", "x....xx"],
        "touches": ["..x..x.", "..x..x.", "xxxxxxx", "..x..x.", "..x..x.", "xxxxxxx", "..x..x."],
        "row": ["xxxxxxx", "xxxx...", "xxxxx..", "xxxxxx.", "x.xxxxx", "x..xxxx", "x...xxx"],
        "column": ["xxxxxxx", "xx.x.x.", "x.x.x.x", "xx.x.x.", "x.x.x.x", "xx.x.x.", "x.x.x.x"],
        "convolutional": ["xxxxxxx", "xxx.xxx", "xxxx.xx", "x.xxx.x", "xx.xxx.", "xxx.xxx", "xxxx.xx"],
    }


def test_random_blocks_are_not_near_and_spread_over_all():
    for causal in (False, True):
        drawn = [reference.drawn_blocks(block, 3, 7, causal) for block in range(400)]
        assert all(len(each) == 3 for each in drawn[5:])
        assert all(
            min(abs(block - key) for key in each) > 1 and 0 not in each for block, each in enumerate(drawn) if each
        )
        shares = sorted(key / block for block, each in enumerate(drawn) for key in each if block > 200)
        reach = 1 if causal else 2
        assert all(abs(shares[len(shares) * part // 10] - reach * part / 10) < 0.06 * reach for part in range(1, 10))
    assert drawn != [reference.drawn_blocks(block, 3, 8, True) for block in range(400)]


def test_visibility():
    keep = torch.tensor([[0, 1, 1, 1, 1]])
    visible = reference.visibility(reference.causal, keep=keep, documents=torch.tensor([[0, 0, 0, 1, 1]]))
    rows = [[s for s in range(5) if visible(0, t, s)] for t in range(5)]
    assert rows == [[], [1], [1, 2], [3], [3, 4]]
    cached = reference.visibility(reference.causal, first_query=3)
    assert [s for s in range(5) if cached(0, 0, s)] == [0, 1, 2, 3]
    shifted = reference.visibility(lambda q, k: reference.block_sparse(q, k, 2), positions=torch.tensor([[0, 0, 1, 2]]))
    assert shifted(0, 2, 1) and shifted(0, 3, 0)
