"""The stack every family is: frontend -> positions -> layers -> norm. Read this page first.

Shapes: B batch, T tokens, S keys, D hidden_size.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.utils.output_capturing import OutputRecorder

from ..configuration.configuration_stack import StackConfig
from .attention import Attention
from .base import QkvPreTrainedModel
from .checks.pipeline_stage import is_elsewhere
from .execution import StackInputs, plan_of
from .frontends import FRONTENDS
from .layer import LAYERS, Layer
from .normalization import make_norm
from .position import POSITIONS
from .position.hooks import Embedded


# trf-ignore: TRF013  each family calls post_init, last
class Stack(QkvPreTrainedModel):
    """A frontend, a position encoding, identical layers and a last norm; every axis is a word in the config.

    The families are stacks, so their parameters are `embed_tokens`, `position`, `layers` and `norm` and nothing wraps
    them: the names on which transformers' pipeline parallelism and sharding plans rely.

    Source: Vaswani et al. 2017, §3, figure 1, https://arxiv.org/abs/1706.03762
    Shapes: hidden (B, T, D) -> (B, T, D)
    """

    config: StackConfig
    frontends: ClassVar[dict[str, Callable[..., nn.Module]]] = FRONTENDS
    # True to take these fast paths wherever they are open, False nowhere, None where they were measured to be faster.
    one_product: bool | None = None
    cudnn_first: bool | None = None
    _no_split_modules = ["Layer"]
    _can_record_outputs = {
        "hidden_states": Layer,
        "attentions": OutputRecorder(Attention, index=1, layer_name="self_attn"),
    }

    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.embed_tokens: Any = self.frontends[config.frontend](config)
        self.position = POSITIONS[config.position_word](config)
        given = config.embedding_width
        width = config.position_width
        inner = config.hidden_size
        outer = config.output_width
        self.project_in = nn.Linear(given, width, bias=False) if given != width else nn.Identity()
        self.embed_norm = make_norm(config, width) if config.embedding_norm else nn.Identity()
        self.embed_dropout = nn.Dropout(config.embedding_dropout)
        self.embed_projection = nn.Linear(width, inner) if width != inner else nn.Identity()
        make = LAYERS[config.parallel_residual]
        self.layers = nn.ModuleList(make(config, index) for index in range(config.num_hidden_layers))
        self.norm = make_norm(config) if config.final_norm else nn.Identity()
        self.final_dropout = nn.Dropout(config.final_dropout)
        self.project_out = nn.Linear(inner, outer, bias=False) if inner != outer else nn.Identity()
        self.gradient_checkpointing = False
        if config.float16_clamp == "branch":
            self._keep_in_fp32_modules = ["down_proj"]

    def run(
        self,
        embedded: Embedded,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        **options: object,
    ) -> Tensor:
        """Run the layers on embedded tokens: (B, T, D) -> (B, T, D), or fewer tokens where fewer are read."""
        plan = plan_of(self, StackInputs.of(self, embedded, position_ids, past_key_values, options))
        hidden = self.first_input(plan.embedded, plan.positions)
        # Assisted decoding by early exit sets fewer layers in the config for a while.
        for layer, context in zip(self.layers, plan.contexts(hidden), strict=False):
            hidden = layer(hidden, context)
        return plan.restore(self.last_output(hidden))

    def first_input(self, embedded: Embedded, positions: Tensor) -> Tensor:
        """Return the input of the first layer; a later stage of a pipeline passes its hidden states through."""
        if is_elsewhere(self.layers[0]):
            return embedded.hidden
        hidden = self.position.embed(embedded._replace(hidden=self.project_in(embedded.hidden)), positions)
        hidden = self.embed_norm(hidden)
        return self.embed_projection(self.embed_dropout(hidden))

    def last_output(self, hidden: Tensor) -> Tensor:
        """Return the output of the stack; an earlier stage of a pipeline returns hidden states for the next."""
        return hidden if is_elsewhere(self.layers[-1]) else self.project_out(self.final_dropout(self.norm(hidden)))
