"""Peak memory: what is held at once, not what is allocated in all, temporaries of operators included."""

import torch

from qkv.scripts.lab.benchmarking.memory import peak_bytes

CPU = torch.device("cpu")
SIZE = 400_000


def test_what_is_freed_does_not_count_twice() -> None:
    def one_after_the_other() -> None:
        for _ in range(4):
            torch.empty(SIZE // 4)

    assert SIZE <= peak_bytes(one_after_the_other, CPU) < 1.1 * SIZE


def test_temporaries_inside_an_operator_count() -> None:
    logits, labels = torch.randn(100, 1000), torch.zeros(100, dtype=torch.long)
    assert peak_bytes(lambda: torch.nn.functional.cross_entropy(logits, labels), CPU) >= SIZE
