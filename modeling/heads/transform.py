"""Heads that score tokens through one more linear map, or without it.

Shapes: B batch, T tokens, D hidden_size, V vocabulary.
"""

from torch import Tensor, nn

from ...configuration.configuration_decoder import QkvDecoderConfig
from ...configuration.configuration_encoder import PooledStackConfig, QkvEncoderConfig
from ..feed_forward import make_activation
from ..normalization import make_norm


class HeadTransform(nn.Module):
    """Apply one more linear map, activation and norm before a classifier.

    Source: Devlin et al. 2019, BERT, §3.1 and its code, https://arxiv.org/abs/1810.04805
    Shapes: (..., D) -> (..., width), D by default
    """

    def __init__(
        self, config: PooledStackConfig | QkvDecoderConfig, width: int | None = None, *, normed: bool = True
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, width or config.hidden_size, bias=config.head_bias)
        self.act_fn = make_activation(config.head_act or config.hidden_act)
        self.norm = make_norm(config, width) if normed else nn.Identity()

    def forward(self, hidden: Tensor) -> Tensor:
        return self.norm(self.act_fn(self.dense(hidden)))


class MaskedLMHead(HeadTransform):
    """Transform, normalise, and score against the embedding table, at its width.

    Source: Devlin et al. 2019, BERT, §3.1, https://arxiv.org/abs/1810.04805
    Shapes: (B, T, D) -> (B, T, V)
    """

    def __init__(self, config: QkvEncoderConfig) -> None:
        super().__init__(config, config.embedding_width)
        self.decoder = nn.Linear(config.embedding_width, config.vocab_size, bias=config.lm_head_bias)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.decoder(self.features(hidden))

    def features(self, hidden: Tensor) -> Tensor:
        """Return the states that `decoder` scores: (B, T, D) -> (B, T, embedding_width)."""
        return super().forward(hidden)


class PlainMaskedLMHead(nn.Module):
    """Score the hidden states themselves, as a decoder does.

    Source: Boizard et al. 2025, EuroBERT, its code, https://arxiv.org/abs/2503.05500
    Shapes: (B, T, D) -> (B, T, V)
    """

    def __init__(self, config: QkvEncoderConfig) -> None:
        super().__init__()
        self.decoder = nn.Linear(config.embedding_width, config.vocab_size, bias=config.lm_head_bias)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.decoder(hidden)

    def features(self, hidden: Tensor) -> Tensor:
        """Return the states that `decoder` scores: all as they are."""
        return hidden


class ReplacedTokenHead(HeadTransform):
    """Score each token for having been put in place of another.

    Source: Clark et al. 2020, ELECTRA, §2, https://arxiv.org/abs/2003.10555
    Shapes: (B, T, D) -> (B, T)
    """

    def __init__(self, config: QkvEncoderConfig) -> None:
        super().__init__(config, normed=False)
        self.score = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.score(super().forward(hidden)).squeeze(-1)


def transform(config: PooledStackConfig) -> nn.Module:
    """Return the `HeadTransform` before a classifier, where the config asks for one."""
    return HeadTransform(config) if config.head_transform else nn.Identity()
