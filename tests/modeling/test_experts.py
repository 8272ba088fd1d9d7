"""Mixtures of experts are those of the papers: choice, weights, outputs and losses, with their gradients."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

import reference
from comparison import EXACT, assert_same, decoder, draw, exact, jittered
from qkv import QkvDecoderForCausalLM, balance_experts
from qkv.modeling.experts.mixture import MANY, MixtureOfExperts, Router
from qkv.modeling.fast_paths.stack_step import StackStep
from qkv.modeling.heads.routing import router_losses, routers_of

MOE = {"feed_forward": "moe", "num_experts": 6, "num_experts_per_tok": 3, "hidden_act": "silu"}
CASES: dict[str, dict[str, Any]] = {
    "mixtral": {"mlp_bias": False},
    "not normed": {"norm_topk_prob": False, "routed_scaling_factor": 2.5},
    "sigmoid": {"router": "sigmoid", "score_correction_bias": True, "moe_intermediate_size": 5},
    "groups": {"router": "sigmoid", "score_correction_bias": True, "n_group": 3, "topk_group": 2, "mlp_bias": False},
    "shared": {"shared_expert_intermediate_size": 4, "mlp_bias": False},
    "shared with gate": {"shared_expert_intermediate_size": 4, "shared_expert_gate": True},
    "gpt-oss": {"swiglu_alpha": 1.7, "swiglu_limit": 0.8},
}
each_case = pytest.mark.parametrize("fields", CASES.values(), ids=CASES)


def mixture(implementation: str = "eager", **fields: Any) -> MixtureOfExperts:
    config = decoder(**{**MOE, **fields}, experts_implementation=implementation)
    module = jittered(MixtureOfExperts(config))
    if module.gate.e_score_correction_bias is not None:
        module.gate.e_score_correction_bias.normal_(std=0.3)
    return module


def slow_routes(router: Router, hidden: Tensor) -> list[tuple[Tensor, dict[int, Tensor]]]:
    """Logits and {expert: weight} of each token."""
    config, routes = router.config, []
    bias = router.e_score_correction_bias
    correction = torch.zeros(config.num_experts) if bias is None else bias
    for token in hidden:
        logits, scores = reference.router_scores(token, router.weight, router.bias, config.router)
        sizes = (config.num_experts_per_tok, config.n_group, config.topk_group)
        chosen = reference.chosen_experts(scores, correction, *sizes)
        total = sum(scores[expert] for expert in chosen) if config.norm_topk_prob else 1
        routes.append((logits, {each: scores[each] / total * config.routed_scaling_factor for each in chosen}))
    return routes


def slow_mixture(module: MixtureOfExperts, hidden: Tensor) -> Tensor:
    experts, config, parts = module.experts, module.gate.config, []
    for index in range(config.num_experts):
        size = config.moe_intermediate_size
        up, down = experts.gate_up_proj[index], experts.down_proj[index]
        biases = (None, None, None)
        if config.mlp_bias:
            both = experts.gate_up_proj_bias[index]
            biases = (both[:size], both[size:], experts.down_proj_bias[index])
        parts.append((up[:size], biases[0], up[size:], biases[1], down, biases[2]))

    def activation(gate: Tensor, units: Tensor) -> Tensor:
        if config.swiglu_alpha:
            return reference.limited_swiglu(gate, units, config.swiglu_alpha, config.swiglu_limit)
        return reference.ACTIVATIONS["silu"](gate) * units

    output = reference.mixture_of_experts(
        hidden, [own for _, own in slow_routes(module.gate, hidden)], parts, activation
    )
    if module.shared_expert is None:
        return output
    shared = module.shared_expert
    linears = (shared.gate_proj, shared.up_proj, shared.down_proj)
    maps = [each for linear in linears for each in (linear.weight, linear.bias)]
    added = reference.glu(hidden, *maps, reference.ACTIVATIONS["silu"])
    gate = module.shared_expert_gate
    return output + (added if gate is None else added / (1 + torch.exp(-reference.linear(hidden, gate.weight, None))))


@each_case
def test_mixture(fields: dict[str, Any]) -> None:
    module, hidden = mixture(**fields), draw(2, 5, 6)
    with exact():
        actual = module(hidden)
    assert_same(actual, slow_mixture(module, hidden.flatten(0, 1)).view(2, 5, 6), hidden, *module.parameters())


@pytest.mark.parametrize("tokens", [1, 10, *(2 * each for each in MANY)])
@pytest.mark.parametrize("implementation", ["grouped_mm", "batched_mm"])
@each_case
def test_grouped_products_are_the_plain_way(fields: dict[str, Any], implementation: str, tokens: int) -> None:
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16, "moe_intermediate_size": 8}
    plain = mixture(**{**fields, **sizes}).float()
    module, hidden = mixture(implementation, **{**fields, **sizes}).float(), draw(1, tokens, 8).detach().float()
    module.load_state_dict(plain.state_dict())
    one, other = (each(hidden) for each in (module, plain))
    with torch.no_grad():
        quick = module(hidden)
    assert max((each - other).abs().max() for each in (one, quick)) <= 1e-5 * other.abs().max()
    for value in (one, other):
        value.square().sum().backward()
    for mine, theirs in zip(module.parameters(), plain.parameters(), strict=True):
        assert (mine.grad - theirs.grad).abs().max() <= 1e-5 * theirs.grad.abs().max() + 1e-6


def test_experts_of_other_processes_add_nothing_to_one_token() -> None:
    way, call = mixture().experts.forward, (draw(1, 6).detach(), torch.tensor([[6, 2, 6]]), draw(1, 3).detach())
    assert torch.allclose(torch.no_grad()(way)(*call), way(*call), rtol=0, atol=1e-13)


def test_router_is_precise_in_half_precision() -> None:
    router = mixture(mlp_bias=False).gate.bfloat16()
    hidden = draw(9, 6).detach().bfloat16()
    logits, weights, index = router(hidden)
    with torch.autocast("cpu", torch.bfloat16):
        again = router(hidden)
    expected = hidden.float() @ router.weight.float().T
    assert torch.equal(logits, again[0]) and torch.equal(weights, again[1]) and torch.equal(index, again[2])
    assert logits.dtype == torch.float32 and torch.allclose(logits, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_products_of_groups_leave_other_widths_to_the_plain_way(dtype: torch.dtype) -> None:
    for size in (16, 20, 21):
        fields = {"hidden_size": 16, "num_attention_heads": 2, "moe_intermediate_size": size, "mlp_bias": False}
        plain, grouped = mixture(**fields).to(dtype), mixture("grouped_mm", **fields).to(dtype)
        grouped.load_state_dict(plain.state_dict())
        hidden = draw(2, 5, 16).detach().to(dtype)
        one, other = (each(hidden).double() for each in (plain, grouped))
        assert (one - other).abs().max() <= 4 * torch.finfo(dtype).eps * one.abs().max()


def model_of(**fields: Any) -> QkvDecoderForCausalLM:
    torch.manual_seed(0)
    words = {**MOE, "feed_forward": ["glu", "moe", "moe"], "experts_implementation": "eager", **fields}
    model = QkvDecoderForCausalLM(decoder(**words, pad_token_id=0)).double()
    with torch.no_grad():
        for router in routers_of(model):
            router.weight.normal_()
    return model


IDS = torch.randint(1, 11, (2, 7), generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
BATCH = {"input_ids": IDS, "attention_mask": MASK, "labels": IDS.masked_fill(MASK == 0, -100)}


@pytest.mark.parametrize("remove", [True, False], ids=["packed", "padded"])
def test_losses_of_routers(remove: bool) -> None:
    """Of real tokens alone, whether the layers see padding or not."""
    model = model_of(router_aux_loss_coef=0.3, router_z_loss_coef=0.2).train()
    model.remove_padding = remove
    with exact():
        output = model(**BATCH)
        without = model.eval()(**BATCH)
    rows = [logits[MASK.flatten().bool()] if len(logits) == 14 else logits for logits in output.router_logits]
    assert {len(logits) for logits in rows} == {11} and "router_logits" not in without
    logits = [each for layer in rows for each in layer]
    chosen = [reference.chosen_experts(each, torch.zeros(6), 3) for each in logits]
    uneven, large = reference.load_balancing_loss(logits, chosen), reference.router_z_loss(logits)
    assert (output.aux_loss - uneven).abs() <= EXACT
    assert (output.loss - without.loss - 0.3 * uneven - 0.2 * large).abs() <= EXACT
    weights = [router.weight for router in routers_of(model)]
    mine = torch.autograd.grad(output.loss, weights, retain_graph=True)
    theirs = torch.autograd.grad(without.loss + 0.3 * uneven + 0.2 * large, weights)
    assert all((one - other).abs().max() <= EXACT for one, other in zip(mine, theirs, strict=True))


def test_even_routers_have_the_least_loss() -> None:
    router = mixture(mlp_bias=False, num_experts_per_tok=1).gate
    even = 5 * torch.eye(6, dtype=torch.float64)
    uneven = torch.cat((even[:1].expand(5, -1), even[1:2]))
    with exact():
        least, most = (router_losses([router], [logits])[0].item() for logits in (even, uneven))
    assert abs(least - 1) < 0.1 < most - 1


def test_losses_add_up_over_micro_batches_of_one_size() -> None:
    """That of large logits; that of uneven loads is a product of means, and that of each part by itself."""
    model = model_of(router_z_loss_coef=0.5).train()
    whole = {**BATCH, "attention_mask": torch.ones_like(MASK), "labels": IDS}
    halves = [{name: value[row : row + 1] for name, value in whole.items()} for row in range(2)]
    with exact():
        one = model(**whole, num_items_in_batch=12).loss
        parts = sum(model(**half, num_items_in_batch=12).loss for half in halves)
    assert (one - parts).abs() <= EXACT
    weights = [router.weight for router in routers_of(model)]
    for mine, theirs in zip(torch.autograd.grad(parts, weights), torch.autograd.grad(one, weights), strict=True):
        assert (mine - theirs).abs().max() <= EXACT


def test_the_bias_of_the_choice_evens_loads() -> None:
    model = model_of(router="sigmoid", score_correction_bias=True).train()
    router = routers_of(model)[0]
    with torch.no_grad():
        router.weight[2] += 3 * router.weight[2].sign()

    def uneven() -> float:
        with exact():
            model(**BATCH)
        assert router.chosen is not None and router.chosen.sum() == 3 * MASK.sum()  # nor by padding
        chosen, before = router.chosen, router.e_score_correction_bias.clone()
        balance_experts(model, rate=0.05)
        assert torch.equal(router.e_score_correction_bias, before + 0.05 * (chosen.mean() - chosen).sign())
        return chosen.std().item()

    loads = [uneven() for _ in range(30)]
    assert sum(loads[-5:]) < sum(loads[:5]) and router.chosen is None


def test_gradient_checkpoints_change_nothing() -> None:
    model = model_of(router_aux_loss_coef=0.3, router_z_loss_coef=0.2).train()
    other = copy.deepcopy(model)
    other.activation_checkpointing_enable()
    with exact():
        for each in (model, other):
            each(**BATCH).loss.backward()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert (one.grad - two.grad).abs().max() <= EXACT


def test_short_steps_write_the_same_tokens() -> None:
    model = model_of(shared_expert_intermediate_size=4, mlp_bias=False, position="rope").float().eval()
    settings = {"max_new_tokens": 6, "do_sample": False}
    assert StackStep(model.model, 1).steps
    tokens = model.generate(IDS, **settings)
    assert torch.equal(tokens, model.generate(IDS, **settings, use_cache=False))


def test_saved_and_loaded(tmp_path: Any) -> None:
    model = model_of(router="sigmoid", score_correction_bias=True, mlp_bias=True, shared_expert_intermediate_size=4)
    for router in routers_of(model):
        router.e_score_correction_bias.normal_()
    model.float().save_pretrained(tmp_path)
    again = QkvDecoderForCausalLM.from_pretrained(tmp_path)
    mine, theirs = again.state_dict(), model.state_dict()
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in theirs)
    half = QkvDecoderForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert routers_of(half)[0].e_score_correction_bias.dtype == torch.float32


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"feed_forward": ["moe", "glu"]}, "feed_forward=.*num_hidden_layers=3"),
        ({"n_group": 4}, "n_group=4"),
        ({"n_group": 6, "topk_group": 2}, "n_group=6"),
        ({"n_group": 2, "topk_group": 3}, "topk_group=3"),
        ({"n_group": 3, "topk_group": 1}, "num_experts_per_tok=3"),
        ({"num_experts_per_tok": 7}, "num_experts_per_tok=7"),
        ({"activation_dropout": 0.1}, "activation_dropout=0, got 0.1"),
        ({"layerdrop": 0.1}, "layerdrop=0, got 0.1"),
        ({"cross_attention": True}, "cross_attention=False, got True"),
        ({"shared_expert_gate": True}, "shared_expert_intermediate_size"),
        ({"router": "soft"}, "did you mean 'softmax'"),
    ],
)
def test_wrong_fields(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        decoder(**{**MOE, **fields})


def test_plans() -> None:
    config = decoder(**{**MOE, "feed_forward": ["glu", "moe", "moe"]}, shared_expert_intermediate_size=4)
    experts = {name: style for name, style in config.base_model_tp_plan.items() if ".mlp." in name}
    assert experts["layers.*.mlp.shared_expert.down_proj"] == "rowwise" == experts["layers.*.mlp.down_proj"]
    assert "layers.*.mlp.experts" not in experts  # their biases would be added by each process
    assert config.base_model_ep_plan["layers.*.mlp.experts.down_proj_bias"] == "grouped_gemm"
    plain = decoder(**MOE, mlp_bias=False)
    assert plain.base_model_tp_plan["layers.*.mlp.experts.gate_up_proj"] == "packed_colwise"
    assert "layers.*.mlp.up_proj" not in plain.base_model_tp_plan and decoder().base_model_ep_plan is None
