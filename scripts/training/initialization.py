"""What does a training start from? Random weights, those of an earlier run, or a stock model to compare with."""

import copy
from functools import wraps
from pathlib import Path
from typing import Any

import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, PreTrainedModel
from transformers.models.bart.modeling_bart import shift_tokens_right

import qkv
from qkv import modeling
from qkv.modeling.loss import classification, contrastive, cross_entropy, next_token
from qkv.modeling.matching import set_loss
from qkv.scripts.recipes.schema import Recipe, refuse_unknown

# The Auto class of stock models for each of our heads, and the loss that ours has.
HEADS: dict[str, tuple[str, Any]] = {
    "ForCausalLM": ("AutoModelForCausalLM", next_token),
    "ForMaskedLM": ("AutoModelForMaskedLM", cross_entropy),
    "ForSequenceClassification": ("AutoModelForSequenceClassification", None),
    "ForConditionalGeneration": ("AutoModelForSeq2SeqLM", cross_entropy),
    "ForImageClassification": ("AutoModelForImageClassification", None),
    "ForSpeechSeq2Seq": ("AutoModelForSpeechSeq2Seq", cross_entropy),
    "ForObjectDetection": ("AutoModelForObjectDetection", set_loss),
    "DualEncoderModel": ("AutoModelForZeroShotImageClassification", contrastive),
}


def start(recipe: Recipe, model: Any) -> PreTrainedModel:
    """The model as the recipe wants it to begin; ValueError where there is nothing to begin with."""
    if recipe.model_source == "stock":
        return counterpart(recipe, model)
    if recipe.init is not None:
        take_over(model, Path(recipe.init))
    return model


def kind_of(recipe: Recipe, model: Any) -> Any:
    """The class of the model that is trained, whatever an engine has made of it."""
    if recipe.model_source == "qkv":
        return getattr(modeling, recipe.architecture)
    return next(base for base in type(model).__mro__ if base.__module__.startswith("transformers."))


def take_over(model: PreTrainedModel, folder: Path) -> list[str]:
    """Put in the weights of a saved model where name and shape are the same, and return the names of the others.

    ValueError when none is, or when there are none.
    """
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise ValueError(f"init={str(folder)!r} holds no weights; give the model folder of a run, such as runs/x/model")
    saved = {name: value for file in files for name, value in load_file(file).items()}
    own = model.state_dict()
    fitting = {name: value for name, value in saved.items() if name in own and own[name].shape == value.shape}
    if not fitting:
        raise ValueError(f"init={str(folder)!r} holds no weight that fits; its model must have the shape of this one")
    model.load_state_dict(fitting, strict=False)
    return sorted(set(own) - set(fitting))


def counterpart(recipe: Recipe, model: Any) -> PreTrainedModel:
    """The stock model that ours is compared with, its weights drawn as transformers draws them, its loss as ours.

    ValueError where stock transformers has no such architecture and the recipe names no other.
    """
    ending = next((name for name in HEADS if recipe.architecture.endswith(name)), None)
    if ending is None:
        raise ValueError(f"model_source=stock has nothing to compare {recipe.architecture} with")
    auto_class, loss = HEADS[ending]
    if recipe.stock:
        config = described(recipe, model.config)
        official = getattr(transformers, auto_class).from_config(config)
    else:
        found = qkv.to_transformers(unsmoothed(model))
        official = type(found)(found.config)
    if loss in OTHERWISE:
        return OTHERWISE[loss](official)
    return with_our_loss(official, loss, getattr(model.config, "label_smoothing", 0.0))


def unsmoothed(model: Any) -> Any:
    """A model of the same shape without label smoothing, which stock models do not have."""
    config = copy.deepcopy(model.config)
    for part in (config, getattr(config, "decoder", config), getattr(config, "encoder", config)):
        if getattr(part, "label_smoothing", 0.0):
            part.label_smoothing = 0.0
    return type(model)(config)


def described(recipe: Recipe, ours: Any) -> Any:
    """The stock config of a recipe, with the sizes and ids that follow from the data."""
    fields = dict(recipe.stock)
    if "model_type" not in fields:
        raise ValueError("stock says nothing about model_type; add for example stock.model_type=gpt2")
    refuse_unknown(fields["model_type"], list(transformers.CONFIG_MAPPING))
    if hasattr(ours, "text_config"):
        fields["text_config"] = {**given(ours.text_config), **fields.get("text_config", {})}
    return AutoConfig.for_model(**{**given(ours), **fields})


def given(config: Any) -> dict[str, Any]:
    """What of a config follows from the data."""
    names = ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "id2label")
    return {name: getattr(config, name) for name in names if getattr(config, name, None) is not None}


def comparing(model: Any) -> PreTrainedModel:
    """A stock dual encoder whose pairs compete over all processes, which they do not by themselves."""
    forward = model.forward

    @wraps(forward)
    def compared(*args: Any, return_loss: Any = None, num_items_in_batch: Any = None, **inputs: Any) -> Any:
        outputs = forward(*args, **inputs)
        if return_loss:
            scale = model.logit_scale.exp()
            outputs.loss = contrastive(outputs.image_embeds, outputs.text_embeds, scale, num_items_in_batch)
        return outputs

    model.forward = compared
    found: PreTrainedModel = model
    return found


def finding(model: Any) -> PreTrainedModel:
    """A stock detector whose loss is divided by what is in the whole step, and not in a part of it."""
    forward = model.forward

    @wraps(forward)
    def found(*args: Any, num_items_in_batch: Any = None, **inputs: Any) -> Any:
        def loss(*given: Any) -> Any:
            logits, labels, _, boxes, config, scores, places = given
            # Of all layers, the last among them.
            layers = [(logits, boxes)] if scores is None else list(zip(scores, places, strict=True))
            return *set_loss(layers, labels, config, num_items_in_batch), None

        model.loss_function = loss
        return forward(*args, **inputs)

    model.forward = found
    official: PreTrainedModel = model
    return official


# Stock models whose forward has to be told more than the loss of logits and labels.
OTHERWISE: dict[Any, Any] = {contrastive: comparing, set_loss: finding}


def with_our_loss(model: Any, loss: Any, smoothing: float) -> PreTrainedModel:
    """A stock model whose loss is a sum over the targets of the whole step, which not all of them know of."""
    forward = model.forward

    @wraps(forward)
    def summed(*args: Any, labels: Any = None, num_items_in_batch: Any = None, **inputs: Any) -> Any:
        if labels is not None and model.config.is_encoder_decoder:
            # Not its own way for all of them: mBART begins with the last token of the labels, `generate` with another.
            start = (model.config.pad_token_id, model.config.decoder_start_token_id)
            inputs.setdefault("decoder_input_ids", shift_tokens_right(labels, *start))
        outputs = forward(*args, **inputs)
        if labels is not None and loss is None:
            outputs.loss = classification(outputs.logits, labels, model.config, num_items_in_batch)
        elif labels is not None:
            options = {"num_items_in_batch": num_items_in_batch, "label_smoothing": smoothing}
            outputs.loss = loss(outputs.logits, labels, **options)
        return outputs

    model.forward = summed
    found: PreTrainedModel = model
    return found
