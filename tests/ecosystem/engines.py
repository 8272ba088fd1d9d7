"""What the transformers backends of vLLM and SGLang do to a model, on a CPU and without their kernels.

Every rule names the file that it is from: vLLM 0.33.0, below vllm/model_executor/models, and SGLang 0.5.23,
sglang/srt/models/transformers.py. Attention, linear layers and tables are plain ones of the engines' shapes.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

# vLLM: transformers/utils.py, replace_linear_class; all else it replicates.
VLLM_STYLES = {"colwise", "rowwise", "replicate", "colwise_gather_output", "rowwise_split_input"}
# SGLang: _normalize_tp_style raises on all else.
SGLANG_STYLES = {"colwise", "colwise_rep", "rowwise", "rowwise_rep", "replicate"}
SGLANG_STYLES |= {"embedding_rowwise", "replicated_with_grad_allreduce"}


def is_interface_lookup(node: ast.expr | None) -> bool:
    """`ALL_ATTENTION_FUNCTIONS.get_interface(...)` or `ALL_ATTENTION_FUNCTIONS[...]`."""
    node = node.func if isinstance(node, ast.Call) else node
    read = node.value if isinstance(node, ast.Attribute | ast.Subscript) else None
    return isinstance(read, ast.Name) and read.id == "ALL_ATTENTION_FUNCTIONS"


def interface_call(forward: Callable[..., Any]) -> ast.Call | None:
    """vLLM: transformers/fusers/attention.py, interface_call; the one call of what a forward looked up."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(forward))))
    looked_up = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and is_interface_lookup(node.value)]
    names = {target.id for node in looked_up for target in node.targets if isinstance(target, ast.Name)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    calls = [node for node in calls if node.func.id in names]
    return calls[0] if len(calls) == 1 else None


def scaling_of(module: nn.Module) -> float | None:
    """vLLM: transformers/fusers/attention.py, AttentionFuser.scale; a literal or an attribute of the module."""
    call = interface_call(type(module).forward)
    (given,) = [word.value for word in call.keywords if word.arg == "scaling"] if call else [None]
    if isinstance(given, ast.Attribute) and isinstance(given.value, ast.Name) and given.value.id == "self":
        return getattr(module, given.attr)
    return given.value if isinstance(given, ast.Constant) else None


def attention_modules(model: nn.Module) -> dict[int, nn.Module]:
    """vLLM: transformers/base.py, recursive_replace and _create_attention_instances; a layer has one attention."""
    found: dict[int, nn.Module] = {}
    for name, module in model.named_modules():
        index = getattr(module, "layer_idx", None)
        if not isinstance(index, int) or interface_call(type(module).forward) is None:
            continue
        if module.config._attn_implementation != "vllm":
            continue
        if index in found:
            raise ValueError(f"Layer {index} dispatches attention from more than one module ({name})")
        found[index] = module
    for index in range(model.config.get_text_config().num_hidden_layers):
        if index not in found and not isinstance(model.get_decoder().layers[index], nn.Identity):
            raise ValueError(f"Layer {index} does not dispatch through the Transformers attention interface")
    return found


class EngineAttention:
    """Attention of an engine: built from the config alone, it sees one row of tokens and knows the sequences itself."""

    def __init__(self, model: PreTrainedModel, index: int, scaling: float | None, lengths: list[int]) -> None:
        config = model.config.get_text_config()
        self.heads = config.num_attention_heads
        self.groups = getattr(config, "num_key_value_heads", self.heads)
        self.width = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.scaling = self.width**-0.5 if scaling is None else scaling
        # vLLM: transformers/base.py, _get_attn_cls; SGLang: _create_attention_instances.
        self.causal = all(getattr(module, "is_causal", True) for module in model.modules())
        sliding = config.layer_types[index] == "sliding_attention"
        self.window = config.sliding_window if sliding else None
        self.lengths = lengths

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """(tokens, heads * head_dim), 2 x (tokens, groups * head_dim) -> (tokens, heads * head_dim)."""
        mixed = []
        for parts in zip(*(each.split(self.lengths) for each in (query, key, value)), strict=True):
            heads = [part.view(len(part), -1, self.width).transpose(0, 1)[None] for part in parts]
            places = torch.arange(len(parts[0]), device=query.device)
            distance = places[:, None] - places
            seen = distance >= 0 if self.causal else torch.ones_like(distance, dtype=torch.bool)
            seen = seen if self.window is None else seen & (distance.abs() < self.window)
            shared = self.groups != self.heads
            read = F.scaled_dot_product_attention(*heads, attn_mask=seen, scale=self.scaling, enable_gqa=shared)
            mixed.append(read[0].transpose(0, 1).flatten(1))
        return torch.cat(mixed)


def in_a_row(attend: Callable[..., Tensor], *heads: Tensor) -> Tensor:
    """Both: (1, H, T, K) -> (T, H * K), which is also what comes back."""
    tokens = heads[0].shape[-2]
    return attend(*(each.transpose(1, 2).reshape(tokens, -1) for each in heads))


def vllm_attention(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **kwargs: Any) -> Any:
    """vLLM: transformers/__init__.py, vllm_attention_forward."""
    return in_a_row(module.attn.forward, query, key, value), None


def sglang_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    attention_instances: Any = None,
    forward_batch: Any = None,
    **kwargs: Any,
) -> Any:
    """SGLang: sglang_flash_attention_forward."""
    attention = attention_instances[module.layer_idx]
    attention.scaling = attention.scaling if scaling is None else float(scaling)
    assert forward_batch == "batch"
    return in_a_row(attention.forward, query, key, value), None


ENGINES = {"vllm": vllm_attention, "sglang": sglang_attention}


@contextmanager
def registered(engine: str) -> Iterator[None]:
    """The attention of an engine, as long as the block runs."""
    ALL_ATTENTION_FUNCTIONS.register(engine, ENGINES[engine])
    try:
        yield
    finally:
        AttentionInterface._global_mapping.pop(engine, None)


def replace_table(model: PreTrainedModel) -> None:
    """SGLang: replace_vocab_embed_class; a table of its own, scaled by what the old one calls `embed_scale`."""
    old = model.get_input_embeddings()
    assert model.config.get_text_config().vocab_size == old.num_embeddings
    table = nn.Embedding(old.num_embeddings, old.embedding_dim, device=old.weight.device)
    table.weight.data.copy_(old.weight.data)
    scale = getattr(old, "embed_scale", None)
    if scale is not None:
        table.register_forward_hook(lambda module, given, found: found * scale)
    model.set_input_embeddings(table)


class Linear(nn.Linear):
    """A layer of an engine: it takes one input, and nothing of the old one but its weights."""

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)


def replace_linear(module: nn.Module) -> None:
    """Both: recursive_replace; whatever is a linear layer becomes one of the engine's."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            new = Linear(child.in_features, child.out_features, bias=child.bias is not None)
            new.load_state_dict(child.state_dict(), assign=True)
            setattr(module, name, new)
        else:
            replace_linear(child)


def styles(model: PreTrainedModel) -> dict[str, str]:
    """Both: the plan of tensor parallelism by layer, whose patterns are read as regular expressions."""
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return {name: next((style for key, style in model.tp_plan.items() if re.match(key, name)), "") for name in linear}


def take_stage(model: PreTrainedModel, stage: int, stages: int, *, tied: bool) -> None:
    """vLLM: transformers/base.py, pipeline_parallel; SGLang is the same with a plan. The last stage keeps tied tables."""
    assert model.supports_pp_plan
    names = list(model._pp_plan)
    (layers,) = (name for name in names if isinstance(attrgetter(name)(model), nn.ModuleList))
    at, count = names.index(layers), len(attrgetter(layers)(model))
    first, last = stage == 0, stage == stages - 1
    missing = [] if first or (tied and last) else names[:at]
    missing += [] if last else names[at + 1 :]
    for name in missing:
        setattr(model, name, nn.Identity())
    share = range(stage * count // stages, (stage + 1) * count // stages)
    for index in set(range(count)) - set(share):
        attrgetter(layers)(model)[index] = Missing()


class Missing(nn.Identity):
    """Both: PPMissingLayer, an identity whatever else it is given."""

    def forward(self, *given: Any, **kwargs: Any) -> Any:
        return given[0] if given else next(iter(kwargs.values()))


def serve(
    model: PreTrainedModel,
    engine: str,
    lengths: list[int],
    stage: int = 0,
    stages: int = 1,
    tied: bool = False,
    device: str = "cpu",
) -> Callable[[Tensor], Tensor]:
    """A stage of a model as an engine runs it: (1, tokens) or (1, tokens, D) -> (tokens, D), sequences in a row."""
    model.config.get_text_config()._attn_implementation = engine
    if stages > 1:
        take_stage(model, stage, stages, tied=tied)
    replace_linear(model)
    replace_table(model) if engine == "sglang" and not isinstance(model.get_input_embeddings(), nn.Identity) else None
    kwargs: dict[str, Any] = {}
    if engine == "vllm":
        for index, module in attention_modules(model).items():
            module.attn = EngineAttention(model, index, scaling_of(module), lengths)
    else:
        count = model.config.num_hidden_layers
        instances = {index: EngineAttention(model, index, None, lengths) for index in range(count)}
        kwargs = {"attention_instances": instances, "forward_batch": "batch"}
    positions = torch.cat([torch.arange(length) for length in lengths])[None].to(device)

    @torch.no_grad()
    def run(given: Tensor) -> Tensor:
        name = "inputs_embeds" if given.is_floating_point() else "input_ids"
        call = {name: given, "use_cache": False, "position_ids": positions, "return_dict": False, **kwargs}
        return model(**call)[0][0, ...]

    return run
