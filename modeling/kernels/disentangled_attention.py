"""Self-attention whose bias comes from queries and keys, and vectors of their distances.

Shapes: B batch, T queries, S keys, N distances, D hidden_size, H heads, G key-value heads, K head_dim.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from ...configuration.configuration_encoder import QkvEncoderConfig
from ..attention import SelfAttention
from ..position.hooks import PositionState


class DisentangledAttention(SelfAttention):
    """Add to a score that of the query with the vector of their distance (`c2p`), and that of the key with it (`p2c`).

    Both are looked up at the distance from key to query, as in the code, where the paper has the opposite one for the
    key. The sum of one to three terms is divided by the square root of their number times K.

    Source: He et al. 2021, DeBERTa, §3.1, eq. 4, https://arxiv.org/abs/2006.03654; its code,
        https://github.com/microsoft/DeBERTa
    Shapes: (B, T, D) -> (B, T, D) and weights (B, H, T, S) or None
    """

    def __init__(self, config: QkvEncoderConfig, layer_index: int) -> None:
        super().__init__(config, layer_index)
        self.terms, self.vector_dropout = config.pos_att_type.split("|"), config.embedding_dropout
        self.scaling = config.attention_multiplier or (config.head_dim * (1 + len(self.terms))) ** -0.5
        own, width = [] if config.share_att_key else self.terms, config.hidden_size
        self.pos_k_proj = nn.Linear(width, self.k_proj.out_features) if "c2p" in own else None
        self.pos_q_proj = nn.Linear(width, self.q_proj.out_features) if "p2c" in own else None

    def added_scores(self, query: Tensor, key: Tensor, position: PositionState) -> Tensor | None:
        if position.bias is None or position.vectors is None:
            return None
        vectors = F.dropout(position.vectors, self.vector_dropout, self.training)[None]
        distances, scores, groups = position.bias.expand(*query.shape[:3], -1), [], self.num_key_value_groups
        if "c2p" in self.terms:
            keys = self.key(vectors) if self.pos_k_proj is None else self.heads(self.pos_k_proj(vectors))
            keys = keys.repeat_interleave(groups, dim=1).transpose(-1, -2)
            scores.append((query * self.scaling @ keys).gather(-1, distances))
        if "p2c" in self.terms:
            queries = self.query(vectors) if self.pos_q_proj is None else self.heads(self.pos_q_proj(vectors))
            key = key.repeat_interleave(groups, dim=1) * self.scaling
            scores.append((queries @ key.transpose(-1, -2)).gather(-2, distances))
        return scores[0] if len(scores) == 1 else scores[0] + scores[1]
