"""A model with code of its own, as somebody may publish it: with a buffer that no file holds and that loading fills."""

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class BufferedConfig(PreTrainedConfig):
    model_type = "buffered"
    hidden_size: int = 8
    vocab_size: int = 16


class BufferedModel(PreTrainedModel):
    config_class = BufferedConfig

    def __init__(self, config):
        super().__init__(config)
        self.embed = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.register_buffer("angles", self.computed(), persistent=False)
        self.post_init()

    def computed(self):
        return torch.arange(self.config.hidden_size).float()

    def _init_weights(self, module):
        super()._init_weights(module)
        if module is self:
            self.angles.copy_(self.computed())

    def forward(self, input_ids):
        return CausalLMOutput(logits=self.embed(input_ids) @ self.embed.weight.T + self.angles.sum())
