"""Losses of routers beside that of the next token, and the balance of the experts that they choose.

Shapes: B batch, T tokens, N tokens of a batch, E experts.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, distributed, nn
from transformers.modeling_outputs import CausalLMOutputWithPast, MoeCausalLMOutputWithPast
from transformers.utils.generic import ModelOutput

from .loss import IGNORED, Count, normalise, real_places, together


def routers_of(model: nn.Module) -> list[Any]:
    """Return the routers of a model, from the first layer to the last."""
    return [module for name, module in model.named_modules() if name.endswith("mlp.gate")]


def recording_routes(model: Any, targets: Tensor | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a model, which records the logits of its routers where training needs them."""
    config = model.config
    counted = config.router_aux_loss_coef or config.router_z_loss_coef or config.score_correction_bias
    due = model.training and targets is not None and counted
    return {**options, "output_router_logits": True} if due else options


def with_router_losses(
    model: Any, output: CausalLMOutputWithPast, outputs: ModelOutput, targets: tuple[Tensor | None, object, Count]
) -> CausalLMOutputWithPast:
    """Add the losses of routers to that of the next token, where logits of routers were recorded.

    `targets` are the tokens to predict, the mask of real tokens and the number of targets of the step. Both losses are
    means of a batch: in gradient accumulation, and over processes, the parts are weighted by their targets. So the
    loss of large logits is that of one big batch where its parts have as many tokens for each target; the loss of
    uneven loads is a product of two means, and asks for evenness inside of each part, which is more.
    """
    if not outputs.get("router_logits"):
        return output
    (labels, mask, items), config, routes = targets, model.config, outputs["router_logits"]
    uneven, large = router_losses(routers_of(model), routes, real_places(mask, outputs["last_hidden_state"]))
    loss = output.loss
    if loss is not None and labels is not None:
        extra = config.router_aux_loss_coef * uneven + config.router_z_loss_coef * large
        count = (labels != IGNORED).sum().clamp(min=1)
        loss = loss + normalise(extra.to(loss.device) * count.to(loss.device), count, items)
    fields: Mapping[str, Any] = {**output, "loss": loss}
    return cast(CausalLMOutputWithPast, MoeCausalLMOutputWithPast(**fields, aux_loss=uneven, router_logits=routes))


def router_losses(
    routers: Sequence[nn.Module], logits: Sequence[Tensor], real: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the losses of uneven loads and of large logits, of the real tokens in all layers; count loads in training.

    An expert's load is the share of tokens that chose it. The first loss is E times the sum over experts of load times
    mean probability, k where all are even; the second the mean square of the logarithm of the sum of exponentials.

    Source: Fedus et al. 2022, Switch Transformers, §2.2, eqs. 4 to 6, https://arxiv.org/abs/2101.03961; large logits:
        Zoph et al. 2022, ST-MoE, §3.1, eq. 5, https://arxiv.org/abs/2202.08906
    Shapes: logits (N, E) of each router, real (B, T) -> (), ()
    """
    sums = []
    for router, scores in zip(cast("Sequence[Any]", routers), logits, strict=True):
        # Where padding was removed there is nothing else than real tokens.
        known = real is not None and real.numel() == len(scores)
        weights = real.flatten().to(scores) if known and real is not None else scores.new_ones(len(scores))
        chosen = weights @ torch.zeros_like(scores).scatter(-1, router.choice(router.score(scores)), 1.0)
        if router.training and router.e_score_correction_bias is not None:
            router.chosen = chosen if router.chosen is None else router.chosen + chosen
        square = weights @ scores.logsumexp(-1).square()
        sums.append([chosen, weights @ scores.softmax(-1), square, weights.sum()])
    device = logits[0].device
    chosen, probability, square, count = (sum(each.to(device) for each in part) for part in zip(*sums, strict=True))
    count = count.clamp(min=1)
    return len(chosen) * (chosen / count * (probability / count)).sum(), square / count


@torch.no_grad()
def balance_experts(model: nn.Module, rate: float = 1e-3) -> None:
    """Move the bias of each router towards even loads, after a step of the optimizer; loads of all processes count.

    `qkv train` calls it; with Trainer call it in `on_step_end` of a callback.

    Source: Wang et al. 2024, Auxiliary-Loss-Free Load Balancing, §3, algorithm 1, https://arxiv.org/abs/2408.15664
    """
    for router in routers_of(model):
        bias = router.e_score_correction_bias
        if bias is None:
            continue
        chosen = torch.zeros_like(bias) if router.chosen is None else router.chosen.to(bias)
        if together():
            distributed.all_reduce(chosen)
        bias += rate * (chosen.mean() - chosen).sign()
        router.chosen = None
