"""Build the stock model that a training is compared with, with the loss of ours."""

import copy
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoConfig, PreTrainedModel
from transformers.models.bart.modeling_bart import shift_tokens_right

import qkv
from qkv.modeling.heads.loss import classification, contrastive, cross_entropy, next_tokens
from qkv.modeling.heads.matching import set_loss
from qkv.scripts.common.files import table
from qkv.scripts.common.words import check_known
from qkv.scripts.recipes.schema import Fields, Recipe
from qkv.scripts.tasks.task import Task
from qkv.scripts.training.run import build


def causal_lm_loss(logits: Tensor, labels: Tensor, **options: Any) -> Tensor | None:
    """Compute the loss of logits that predict the next of the labels."""
    return cross_entropy(logits, next_tokens(labels), **options)


# The Auto class of stock models for each of our heads, and the loss of ours.
HEADS: dict[str, tuple[str, Any]] = {
    "ForCausalLM": ("AutoModelForCausalLM", causal_lm_loss),
    "ForMaskedLM": ("AutoModelForMaskedLM", cross_entropy),
    "ForSequenceClassification": ("AutoModelForSequenceClassification", None),
    "ForTokenClassification": ("AutoModelForTokenClassification", cross_entropy),
    "ForConditionalGeneration": ("AutoModelForSeq2SeqLM", cross_entropy),
    "ForImageClassification": ("AutoModelForImageClassification", None),
    "ForSpeechSeq2Seq": ("AutoModelForSpeechSeq2Seq", cross_entropy),
    "ForObjectDetection": ("AutoModelForObjectDetection", set_loss),
    "DualEncoderModel": ("AutoModelForZeroShotImageClassification", contrastive),
}
# The fields of the stock model's config, by recipe; of other recipes it is the one of the same architecture.
STOCK: dict[str, Fields] = table(__file__)
# Fields of a config that follow from the data.
DATA_FIELDS = ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "id2label")


def has_stock(architecture: str) -> bool:
    """Tell whether transformers has a head such as that of an architecture."""
    return architecture.endswith(tuple(HEADS))


def build_stock(recipe: Recipe, task: Task) -> PreTrainedModel:
    """Build the stock model to compare a recipe's model with."""
    if recipe.model.init is not None:
        raise ValueError("the stock model starts at random, to compare with; leave out init")
    return stock_model(recipe, build(recipe, task), STOCK.get(recipe.name, {}))


def stock_model(recipe: Recipe, model: Any, fields: Fields) -> PreTrainedModel:
    """Return the stock model to compare ours with: initialised by transformers, trained with the loss of ours.

    ValueError where stock transformers has no such architecture and the `fields` of a config name no other.
    """
    head = next((name for name in HEADS if recipe.model.architecture.endswith(name)), None)
    if head is None:
        raise ValueError(f"transformers has nothing to compare {recipe.model.architecture} with")
    auto_class, loss = HEADS[head]
    if fields:
        config = stock_config(fields, model.config)
        try:
            stock = getattr(transformers, auto_class).from_config(config)
        except ValueError:
            raise ValueError(
                f"model_type={config.model_type!r} has no class of {auto_class} in transformers, which "
                f"{recipe.model.architecture} is compared with; take another model_type"
            ) from None
        if head == "ForCausalLM":
            check_causal(stock)
    else:
        equal = qkv.to_transformers(without_label_smoothing(model))
        stock = type(equal)(equal.config)
    wrap = {contrastive: with_contrastive_loss, set_loss: with_detection_loss}.get(loss)
    if wrap is not None:
        return wrap(stock)
    return with_summed_loss(stock, loss, getattr(model.config, "label_smoothing", 0.0))


def check_causal(stock: Any) -> None:
    """Raise ValueError for a language model whose predictions change with later tokens, such as BERT as an encoder."""
    ids = torch.arange(1, 9)[None] % stock.config.get_text_config().vocab_size
    other = torch.cat((ids[:, :-1], ids[:, :1]), dim=1)
    stock.eval()
    with torch.no_grad():
        one, two = (stock(input_ids=tokens).logits[:, :-1] for tokens in (ids, other))
    stock.train()
    if not torch.allclose(one, two, atol=1e-4):
        kind = stock.config.model_type
        raise ValueError(
            f"model_type={kind!r} sees the tokens that it is to predict: it is no causal language model as "
            "configured; take gpt2 or llama, or set is_decoder=true"
        )


def without_label_smoothing(model: Any) -> Any:
    """Return a model of the same shape without label smoothing, which stock models do not have."""
    config = copy.deepcopy(model.config)
    for part in (config, getattr(config, "decoder", config), getattr(config, "encoder", config)):
        if getattr(part, "label_smoothing", 0.0):
            part.label_smoothing = 0.0
    return type(model)(config)


def stock_config(fields: Fields, ours: Any) -> Any:
    """Return the stock config of these fields, with the sizes and ids that follow from the data."""
    if "model_type" not in fields:
        raise ValueError("the stock model has no model_type; add for example model_type: gpt2")
    check_known(fields["model_type"], list(transformers.CONFIG_MAPPING))
    if hasattr(ours, "text_config"):
        fields = {**fields, "text_config": {**data_fields(ours.text_config), **fields.get("text_config", {})}}
    return AutoConfig.for_model(**{**data_fields(ours), **fields})


def data_fields(config: Any) -> dict[str, Any]:
    """Return the fields of a config that follow from the data."""
    return {name: getattr(config, name) for name in DATA_FIELDS if getattr(config, name, None) is not None}


def with_forward(model: Any, forward: Callable[..., Any]) -> PreTrainedModel:
    """Replace a model's forward by one that is given the original, and keep its signature, which `generate` reads."""
    original = model.forward

    @wraps(original)
    def replaced(*args: Any, **inputs: Any) -> Any:
        return forward(original, *args, **inputs)

    model.forward = replaced
    wrapped: PreTrainedModel = model
    return wrapped


def with_contrastive_loss(model: Any) -> PreTrainedModel:
    """Have the pairs of a stock dual encoder compete over all processes."""

    def forward(
        original: Any, *args: Any, return_loss: Any = None, num_items_in_batch: Any = None, **inputs: Any
    ) -> Any:
        outputs = original(*args, **inputs)
        if return_loss:
            scale = model.logit_scale.exp()
            outputs.loss = contrastive(outputs.image_embeds, outputs.text_embeds, scale, num_items_in_batch)
        return outputs

    return with_forward(model, forward)


def with_detection_loss(model: Any) -> PreTrainedModel:
    """Divide the loss of a stock detector by the objects of the whole step instead of those of a micro-batch."""

    def forward(original: Any, *args: Any, num_items_in_batch: Any = None, **inputs: Any) -> Any:
        def loss(*given: Any) -> Any:
            logits, labels, _, boxes, config, layer_logits, layer_boxes = given
            # Of all layers, the last among them.
            layers = [(logits, boxes)] if layer_logits is None else list(zip(layer_logits, layer_boxes, strict=True))
            return *set_loss(layers, labels, config, num_items_in_batch), None

        model.loss_function = loss
        return original(*args, **inputs)

    return with_forward(model, forward)


def with_summed_loss(model: Any, loss: Any, smoothing: float) -> PreTrainedModel:
    """Divide the loss of a stock model by the targets of the whole step, which some stock models ignore."""

    def forward(original: Any, *args: Any, labels: Any = None, num_items_in_batch: Any = None, **inputs: Any) -> Any:
        if labels is not None and model.config.is_encoder_decoder:
            # mBART's own shift begins with the last token of the labels, `generate` with decoder_start_token_id.
            start = (model.config.pad_token_id, model.config.decoder_start_token_id)
            inputs.setdefault("decoder_input_ids", shift_tokens_right(labels, *start))
        outputs = original(*args, **inputs)
        if labels is not None and loss is None:
            outputs.loss = classification(outputs.logits, labels, model.config, num_items_in_batch)
        elif labels is not None:
            options = {"num_items_in_batch": num_items_in_batch, "label_smoothing": smoothing}
            outputs.loss = loss(outputs.logits, labels, **options)
        return outputs

    return with_forward(model, forward)
