"""Equality before timing: another number anywhere stops a measurement."""

import pytest
import torch

from qkv.scripts.lab.benchmarking import run
from qkv.scripts.lab.benchmarking.candidate import Candidate
from qkv.scripts.lab.benchmarking.contenders import CONTENDERS, Contender, theirs
from qkv.scripts.lab.benchmarking.equality import UnequalError, check_equal, distance, gradients
from tiny_workloads import settings, tiny


def changed(part: str, amount: float):
    """A contender with a weight that differs: the last number of a tensor."""

    def take_over(stock, workload):
        taken = theirs(stock, workload)
        with torch.no_grad():
            taken.model.get_parameter(part).view(-1)[-1].add_(amount)
        return taken

    return Contender("something else", take_over)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("mlm-train-small-128", "bert.encoder.layer.0.output.dense.weight"),
        ("encode-small-128", "encoder.layer.1.attention.self.value.bias"),
        ("clm-train-small-256", "transformer.wpe.weight"),
        ("decode-small-1", "transformer.h.0.mlp.c_fc.weight"),
    ],
)
def test_another_weight_is_caught_before_anything_is_timed(
    name: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = tiny(name)
    if part.endswith("wpe.weight"):
        workload = run.Workload(**{**vars(workload), "length": 64})  # the last position is read
    monkeypatch.setitem(CONTENDERS, "other", changed(part, 0.5))
    monkeypatch.setattr(run, "in_turns", lambda *_: pytest.fail("it was timed"))
    with pytest.raises(UnequalError, match="other differs from transformers in .*there is nothing to time"):
        run.measure(workload, settings("transformers", "other"), lambda *_: None)


def linear(weight: float) -> torch.nn.Linear:
    layer = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(layer.weight, weight)
    layer(torch.ones(1, 1)).square().backward()
    return layer


def test_gradients_are_compared_by_the_names_of_a_contender() -> None:
    wanted = gradients(linear(1.0))
    candidate = Candidate(linear(1.0), lambda slopes: slopes)
    loss = {"loss": torch.tensor(1.0)}
    assert check_equal("other", candidate, (loss, wanted), loss, torch.float32) == {"loss": 0.0, "gradients": 0.0}
    candidate = Candidate(linear(1.5), lambda slopes: slopes)
    with pytest.raises(UnequalError, match="gradient of weight by 0.5"):
        check_equal("other", candidate, (loss, wanted), loss, torch.float32)
    candidate = Candidate(linear(1.0), lambda slopes: {"another": slopes["weight"]})
    with pytest.raises(UnequalError, match="no gradient of another"):
        check_equal("other", candidate, (loss, wanted), loss, torch.float32)


def test_other_tokens_are_no_equal_generation() -> None:
    candidate = Candidate(torch.nn.Identity(), lambda slopes: slopes)
    wanted = {"tokens": torch.tensor([[1, 2]])}, {}
    with pytest.raises(UnequalError, match="generates other tokens"):
        check_equal("other", candidate, wanted, {"tokens": torch.tensor([[1, 3]])}, torch.float32)


def test_distances_are_relative_to_the_greatest_number() -> None:
    wanted = torch.tensor([0.0, 10.0, -20.0])
    assert distance(wanted + torch.tensor([0.0, 0.0, 2.0]), wanted) == pytest.approx(0.1)
    assert distance(torch.tensor([1e-9]), torch.tensor([2e-9]), floor=1.0) == pytest.approx(1e-9)
    assert not distance(torch.tensor([float("nan")]), torch.tensor([1.0])) <= 1
    with pytest.raises(UnequalError, match=r"shapes \(2,\) and \(3,\)"):
        distance(torch.ones(2), torch.ones(3))
