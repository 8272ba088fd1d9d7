"""The ViT of the library timm with the weights of a stock one."""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from transformers.modeling_outputs import ImageClassifierOutput

from qkv.scripts.lab.benchmarking.candidate import AbsentError, Candidate, Row, check_installed, copied, joined, of_rows
from qkv.scripts.lab.benchmarking.workloads import Workload

LIBRARY = "timm"
# Modules outside of the blocks and inside of them, by their names in the stock model.
PLACES = {
    "cls_token": "vit.embeddings.cls_token",
    "pos_embed": "vit.embeddings.position_embeddings",
    "patch_embed.proj": "vit.embeddings.patch_embeddings.projection",
    "norm": "vit.layernorm",
    "head": "classifier",
}
BLOCK = {
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "attn.proj": "attention.o_proj",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}


class TimmViT(nn.Module):
    """A ViT of the library, called as the stock one is."""

    def __init__(self, config: Any) -> None:
        from timm.models.vision_transformer import VisionTransformer

        super().__init__()
        self.net = VisionTransformer(
            img_size=config.image_size,
            patch_size=config.patch_size,
            num_classes=config.num_labels,
            embed_dim=config.hidden_size,
            depth=config.num_hidden_layers,
            num_heads=config.num_attention_heads,
            mlp_ratio=config.intermediate_size / config.hidden_size,
            norm_layer=partial(nn.LayerNorm, eps=config.layer_norm_eps),
        )

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> ImageClassifierOutput:
        """Return the logits, and the loss where there are labels."""
        logits = self.net(pixel_values)
        loss = None if labels is None else functional.cross_entropy(logits, labels)
        return ImageClassifierOutput(loss=loss, logits=logits)


def timm_vit(stock: Any, workload: Workload) -> Candidate:
    """Take over a ViT."""
    check_installed(LIBRARY)
    try:
        model = TimmViT(stock.config)
    except ImportError as error:
        raise AbsentError(f"it cannot be imported: {error}") from error
    return of_rows(model, stock, {name: row_of(name) for name, _ in model.named_parameters()})


def row_of(name: str) -> Row:
    """Return the row of a weight by its name."""
    name = name.removeprefix("net.")
    if name in PLACES:
        return copied(PLACES[name])
    place, _, kind = name.rpartition(".")
    if not name.startswith("blocks."):
        return copied(f"{PLACES[place]}.{kind}")
    _, layer, place = place.split(".", 2)
    theirs = f"vit.layers.{layer}"
    if place == "attn.qkv":
        return joined(*(f"{theirs}.attention.{what}_proj.{kind}" for what in "qkv"))
    return copied(f"{theirs}.{BLOCK[place]}.{kind}")
