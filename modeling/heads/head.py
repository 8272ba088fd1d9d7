"""Poolers and heads on the last hidden state.

Shapes: B batch, T tokens, D hidden_size, V vocabulary or labels, C channels, P patch_size.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput, QuestionAnsweringModelOutput, TokenClassifierOutput

from ...configuration.configuration_base import QkvConfig
from ...configuration.configuration_decoder import QkvDecoderConfig
from ...configuration.configuration_encoder import PooledStackConfig
from ...configuration.configuration_image_encoder import QkvImageEncoderConfig
from ..attention import CrossAttention
from ..checks.inputs import check_end_tokens
from ..context import LayerContext, Memory
from ..feed_forward import MLP, make_activation
from ..normalization import make_norm
from .loss import Count, cross_entropy, due_labels, question_answering_loss, real_places


def label_classifier(config: QkvConfig, *, bias: bool = True) -> nn.Linear:
    """Build a linear map to one score for each of `num_labels`: (..., D) -> (..., V)."""
    return nn.Linear(config.output_width, int(config.num_labels or 0), bias=bias)


class FirstTokenPooler(nn.Module):
    """Read the first token, where class tokens stand.

    Source: Dosovitskiy et al. 2021, §3.1, eq. 4, https://arxiv.org/abs/2010.11929
    Shapes: hidden (B, T, D), keep (B, T) or None -> (B, D)
    """

    # How many of the first tokens are read, or None for all.
    tokens_read: ClassVar[int | None] = 1

    def __init__(self, config: PooledStackConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, hidden: Tensor, keep: Tensor | None = None, input_ids: Tensor | None = None) -> Tensor:
        if keep is None:
            return hidden[:, 0]
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), keep.to(hidden.device).int().argmax(-1)]

    @staticmethod
    def classifier(config: PooledStackConfig) -> nn.Module:
        """Return the map from the pooled vector to a score for each label."""
        return label_classifier(config)


class DensePooler(FirstTokenPooler):
    """Pass the first token through a linear map and an activation, tanh unless `head_act` says otherwise.

    Source: Devlin et al. 2019, BERT, §3.1 and its code, https://arxiv.org/abs/1810.04805
    Shapes: hidden (B, T, D), keep (B, T) or None -> (B, D)
    """

    def __init__(self, config: PooledStackConfig) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(config.pooling_dropout)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.head_bias)
        self.act_fn = make_activation(config.head_act or "tanh")

    def forward(self, hidden: Tensor, keep: Tensor | None = None, input_ids: Tensor | None = None) -> Tensor:
        return self.act_fn(self.dense(self.dropout(super().forward(hidden, keep))))


class MeanPooler(FirstTokenPooler):
    """Average the real tokens, or the patches without the tokens put before them.

    Source: Reimers & Gurevych 2019, Sentence-BERT, §3, https://arxiv.org/abs/1908.10084
    Shapes: hidden (B, T, D), keep (B, T) or None -> (B, D)
    """

    tokens_read = None

    def forward(self, hidden: Tensor, keep: Tensor | None = None, input_ids: Tensor | None = None) -> Tensor:
        if keep is None:
            return hidden[:, self.config.num_prefix_tokens :].mean(1)
        weights = keep.to(hidden)[..., None]
        return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)


class DistilledPooler(FirstTokenPooler):
    """Read the class token and the distillation token side by side.

    Source: Touvron et al. 2021, DeiT, §4, https://arxiv.org/abs/2012.12877
    Shapes: hidden (B, T, D), keep unused -> (B, 2, D)
    """

    tokens_read = 2

    def forward(self, hidden: Tensor, keep: Tensor | None = None, input_ids: Tensor | None = None) -> Tensor:
        return hidden[:, :2]

    @staticmethod
    def classifier(config: PooledStackConfig) -> nn.Module:
        return DistilledClassifier(config)


class DistilledClassifier(nn.Module):
    """Average the scores of a classifier on the class token and one on the distillation token.

    Source: Touvron et al. 2021, DeiT, §4, https://arxiv.org/abs/2012.12877
    Shapes: (B, 2, D) -> (B, V)
    """

    def __init__(self, config: PooledStackConfig) -> None:
        super().__init__()
        self.class_classifier = label_classifier(config)
        self.distillation_classifier = label_classifier(config)

    def forward(self, pooled: Tensor) -> Tensor:
        return (self.class_classifier(pooled[:, 0]) + self.distillation_classifier(pooled[:, 1])) / 2


class FirstMeanPooler(MeanPooler):
    """Put the class token beside the mean of the patches.

    Source: Oquab et al. 2023, DINOv2, §7.1, https://arxiv.org/abs/2304.07193
    Shapes: hidden (B, T, D), keep unused -> (B, 2 * D)
    """

    def forward(self, hidden: Tensor, keep: Tensor | None = None, input_ids: Tensor | None = None) -> Tensor:
        return torch.cat((hidden[:, 0], super().forward(hidden)), dim=-1)

    @staticmethod
    def classifier(config: PooledStackConfig) -> nn.Module:
        return nn.Linear(2 * config.hidden_size, int(config.num_labels or 0))


class NormedPooler(FirstTokenPooler):
    """Normalise the first token alone.

    Source: Radford et al. 2021, CLIP, §2.4 and its code, https://arxiv.org/abs/2103.00020
    Shapes: hidden (B, T, D), keep (B, T) or None -> (B, D)
    """

    def __init__(self, config: PooledStackConfig) -> None:
        super().__init__(config)
        self.norm = make_norm(config)

    def forward(self, hidden: Tensor, keep: Tensor | None = None, input_ids: Tensor | None = None) -> Tensor:
        return self.norm(super().forward(hidden, keep))


class EndTokenPooler(FirstTokenPooler):
    """Read the first end-of-text token, or with embeddings for ids the last real token.

    Source: Radford et al. 2021, CLIP, §2.4, https://arxiv.org/abs/2103.00020
    Shapes: hidden (B, T, D), keep (B, T) or None, input_ids (B, T) or None -> (B, D)
    """

    tokens_read = None

    def forward(self, hidden: Tensor, keep: Tensor | None = None, input_ids: Tensor | None = None) -> Tensor:
        if input_ids is None:
            return last_token(hidden, keep)
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), self.end(input_ids).to(hidden.device)]

    def end(self, input_ids: Tensor) -> Tensor:
        """Return the index of the token to read: (B, T) -> (B,)."""
        end: int = self.config.eos_token_id
        ends = input_ids.eq(end)
        check_end_tokens(ends, end, ", which pooling='end' reads; append it")
        return ends.int().argmax(-1)


class HighestTokenPooler(EndTokenPooler):
    """Read the token of the highest id, which ends a text in CLIP's vocabulary.

    Source: Radford et al. 2021, CLIP, its code (`text.argmax`), https://github.com/openai/CLIP
    Shapes: hidden (B, T, D), keep (B, T) or None, input_ids (B, T) or None -> (B, D)
    """

    def end(self, input_ids: Tensor) -> Tensor:
        return input_ids.int().argmax(-1)


class LastTokenPooler(FirstTokenPooler):
    """Pass the last token, even of padding, through a linear map.

    Source: Zhai et al. 2023, SigLIP, its code (`pool_type="last"`), https://github.com/google-research/big_vision
    Shapes: hidden (B, T, D), keep unused -> (B, D)
    """

    tokens_read = None

    def __init__(self, config: PooledStackConfig) -> None:
        super().__init__(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: Tensor, keep: Tensor | None = None, input_ids: Tensor | None = None) -> Tensor:
        last = hidden[:, -1]
        return self.dense(last)


class AttentionPooler(FirstTokenPooler):
    """Read all tokens by a learned query, and pass it through a feed-forward network.

    Source: Lee et al. 2019, Set Transformer, §3.2, https://arxiv.org/abs/1810.00825; images: Zhai et al. 2022, Scaling
        Vision Transformers, §2.2, https://arxiv.org/abs/2106.04560
    Shapes: hidden (B, T, D), keep unused -> (B, D)
    """

    tokens_read = None

    def __init__(self, config: PooledStackConfig) -> None:
        super().__init__(config)
        self.probe = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        self.attention = CrossAttention(config, 0)
        self.attention.norm_rotated = False  # it turns nothing
        self.norm = make_norm(config)
        self.mlp = MLP(config)

    def init_parameters(self, std: float) -> None:
        """Start with a random query."""
        init.normal_(self.probe, std=std)

    def forward(self, hidden: Tensor, keep: Tensor | None = None, input_ids: Tensor | None = None) -> Tensor:
        read, _ = self.attention(self.probe.expand(len(hidden), -1, -1), LayerContext(memory=Memory(hidden)))
        return (read + self.mlp(self.norm(read)))[:, 0]


POOLINGS = {
    "first": FirstTokenPooler,
    "dense": DensePooler,
    "mean": MeanPooler,
    "distilled": DistilledPooler,
    "first_mean": FirstMeanPooler,
    "first_norm": NormedPooler,
    "end": EndTokenPooler,
    "highest": HighestTokenPooler,
    "last": LastTokenPooler,
    "attention": AttentionPooler,
}


class PixelHead(nn.Module):
    """Predict the pixels of each patch and lay them out as an image.

    Source: Xie et al. 2022, SimMIM, §3.3, https://arxiv.org/abs/2111.09886
    Shapes: patches (B, rows * columns, D), grid -> (B, C, rows * P, columns * P)
    """

    def __init__(self, config: QkvImageEncoderConfig) -> None:
        super().__init__()
        self.projection = nn.Conv2d(config.hidden_size, config.patch_size**2 * config.num_channels, kernel_size=1)
        self.shuffle = nn.PixelShuffle(config.patch_size)

    def forward(self, patches: Tensor, grid: tuple[int, int]) -> Tensor:
        return self.shuffle(self.projection(patches.transpose(1, 2).unflatten(2, grid)))


def last_token(hidden: Tensor, keep: Tensor | None) -> Tensor:
    """Select each row's last real token: (B, T, D) -> (B, D)."""
    if keep is None:
        return hidden[:, -1]
    index = torch.arange(hidden.shape[1], device=hidden.device)
    keep = keep[:, -hidden.shape[1] :]  # a cached prefix has no hidden state here
    last = (keep.to(hidden.device, torch.bool) * index).argmax(-1)
    return hidden[torch.arange(hidden.shape[0], device=hidden.device), last]


def scale_for_head(hidden: Tensor, config: QkvDecoderConfig) -> Tensor:
    """Scale (B, T, D) by a factor that logits have then: T5 v1.0 undoes the variance of its tied table."""
    return hidden if config.logit_scale == 1.0 else hidden * config.logit_scale


def token_output(
    outputs: BaseModelOutput, logits: Tensor, labels: Tensor | None, mask: object, count: Count, label_smoothing: float
) -> TokenClassifierOutput:
    """Score each token, (B, T, V), with a loss if labels (B, T) are given, of tokens that a mask (B, S) marks."""
    loss = cross_entropy(logits, due_labels(labels, real_places(mask, logits)), count, label_smoothing)
    return TokenClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


def question_answering_output(
    outputs: BaseModelOutput, logits: Tensor, answers: tuple[Tensor | None, Tensor | None], mask: object, *loss: Any
) -> QuestionAnsweringModelOutput:
    """Score an answer's first and last token, (B, T, 2), with a loss if both `answers` (B,) are given."""
    starts, ends = (scores.contiguous() for scores in logits.unbind(-1))
    total = question_answering_loss((starts, ends), answers, mask, *loss)
    return QuestionAnsweringModelOutput(total, starts, ends, outputs.hidden_states, outputs.attentions)
