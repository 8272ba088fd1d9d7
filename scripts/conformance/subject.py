"""A model under check: its class, configuration and weights, fresh copies of it, and inputs that fit."""

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import initialization

from qkv.scripts.conformance.outcomes import main_output
from qkv.scripts.conformance.source import resolve

Inputs = dict[str, Tensor]
CACHES = ("cache", "past_key_values")  # the cache has another name from transformers 5.24 on
MODALITIES = {"pixel_values": "image", "input_values": "speech", "input_features": "speech"}
WITHOUT_COMPILER = "force_eager"  # flex attention without code generation, which takes minutes
MATRICES = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, transformers.pytorch_utils.Conv1D)
SPREAD = 0.15


@dataclass(frozen=True)
class Options:
    """Reading of a source: `inputs(rows, length, seed)` replaces made inputs, `weights` reads stored ones."""

    config: Any = None
    inputs: Callable[[int, int, int], Inputs] | None = None
    seed: int = 0
    weights: bool = False
    trust_remote_code: bool = False
    revision: str | None = None

    @property
    def loading(self) -> dict[str, Any]:
        """Return the options of from_pretrained."""
        return {"trust_remote_code": self.trust_remote_code, "revision": self.revision}


class Subject:
    """A model that is built from a source at its first use; `again` has other weights and inputs."""

    def __init__(self, source: Any, options: Options) -> None:
        self.source, self.options, self.seed = source, options, options.seed
        self.cls, self.config = resolve(source, options.config, **options.loading)
        self.names, self.text = parameters_of(self.cls), self.config.get_text_config(decoder=True)
        self.cache = next((name for name in CACHES if name in self.names), None)
        self.seq2seq = "decoder_input_ids" in self.names and getattr(self.config, "is_encoder_decoder", False)
        self.stream = "decoder_input_ids" if self.seq2seq else "input_ids"  # the tokens that a decoder reads

    @cached_property
    def again(self) -> "Subject":
        """Return the same source with other weights and inputs."""
        return Subject(self.source, replace(self.options, seed=self.seed + 100))

    @cached_property
    def state(self) -> Mapping[str, Tensor]:
        """Return the weights: those of a model or a folder, else random ones that show every path."""
        torch.manual_seed(self.seed)
        if isinstance(self.source, nn.Module):
            return self.source.state_dict()
        if self.options.weights:
            return self.cls.from_pretrained(self.source, dtype=torch.float32, **self.options.loading).state_dict()
        return agitate(self.cls._from_config(copy.deepcopy(self.config), dtype=torch.float32), self.seed).state_dict()

    @cached_property
    def model(self) -> Any:
        """Return the model in evaluation mode."""
        return self.fresh()

    @cached_property
    def kind(self) -> str:
        """Return the tag that chooses the checks: decoder, encoder, seq2seq, image, speech or pair."""
        if "pixel_values" in self.names and hasattr(self.model, "logit_scale"):
            return "pair"
        if self.seq2seq:
            return "seq2seq"
        return MODALITIES.get(self.cls.main_input_name, "decoder" if self.cls.can_generate() else "encoder")

    @cached_property
    def per_token(self) -> bool:
        """Return whether there is one row of logits for each token."""
        if self.kind not in ("decoder", "encoder"):
            return False
        shape = self.logits(self.model, self.batch()).shape
        return len(shape) == 3 and shape[1] == 12

    @cached_property
    def refused(self) -> dict[str, Exception | None]:
        """Return the attention backends that the class claims, each with its error on two rows; None if it runs."""
        claimed = ["eager"] + ["sdpa"] * self.cls._supports_sdpa + ["flex_attention"] * self.cls._supports_flex_attn
        errors: dict[str, Exception | None] = dict.fromkeys(claimed)
        for backend in claimed:
            try:
                with torch.compiler.set_stance(WITHOUT_COMPILER):
                    self.run(self.fresh(backend), self.batch())
            except Exception as error:
                errors[backend] = error
        return errors

    @property
    def backends(self) -> list[str]:
        """Return the attention backends that run."""
        return [backend for backend, error in self.refused.items() if error is None]

    def fresh(self, attention: str | None = None, *, still: bool = False, config: Any = None) -> Any:
        """Return the same weights in a new model; a `still` one has no dropout, no layer drop, no masked inputs."""
        config = copy.deepcopy(config or self.config)
        if still:
            quieten(config)
        torch.manual_seed(self.seed)
        chosen = {"attn_implementation": attention} if attention else {}
        with initialization.no_init_weights():
            model = self.cls._from_config(config, dtype=torch.float32, **chosen)
        model.tie_weights()  # which no_init_weights leaves out
        model.load_state_dict(self.state)
        if model.can_generate():
            model.generation_config.eos_token_id, model.generation_config.pad_token_id = None, 0
        if still:
            silence(model)
        return model.eval()

    def batch(self, rows: int = 2, length: int = 12, shift: int = 0) -> Inputs:
        """Return inputs; another shift gives other values."""
        make = self.options.inputs
        return make(rows, length, self.seed + shift) if make else made_batch(self, rows, length, shift)

    def ids(self, rows: int, length: int, shift: int = 0) -> Tensor:
        """Return random tokens, none of them special."""
        generator = torch.Generator().manual_seed(self.seed + shift)
        return torch.randint(5, self.text.vocab_size - 3, (rows, length), generator=generator)

    @torch.no_grad()
    def run(self, model: Any, inputs: Inputs, **more: Any) -> Any:
        """Run a forward pass without gradients."""
        return model(**inputs, **more)

    def logits(self, model: Any, inputs: Inputs, **more: Any) -> Tensor:
        """Return the main output of a forward pass."""
        return main_output(self.run(model, inputs, **more))


def parameters_of(model_class: Any) -> set[str]:
    """Return the parameters that forward names, behind `*args, **kwargs` also those of the classes below."""
    names: set[str] = set()
    for each in model_class.__mro__:
        if "forward" in vars(each):
            parameters = inspect.signature(each.forward).parameters.values()
            names |= {parameter.name for parameter in parameters}
            if not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
                break
    return names


@torch.no_grad()
def agitate(model: Any, seed: int) -> Any:
    """Make weights so large that every path shows in the output; start at random what starts at zero."""
    generator = torch.Generator().manual_seed(seed)
    owners = {id(weight): (module, weight) for module in model.modules() for weight in module.parameters(recurse=False)}
    for module, weight in owners.values():
        if isinstance(module, MATRICES) and weight.dim() >= 2 and 0 < weight.std() < SPREAD:
            weight.mul_(SPREAD / weight.std())
        elif not weight.any():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.05)
    return model


def quieten(config: Any) -> None:
    """Set dropout, layer drop and masking of inputs to zero."""
    for name, value in config.to_dict().items():
        if isinstance(getattr(config, name, None), transformers.PreTrainedConfig):
            quieten(getattr(config, name))
        elif (isinstance(value, float) and "drop" in name) or name == "apply_spec_augment":
            setattr(config, name, type(value)(0))


def silence(model: Any) -> None:
    """Take away dropout, and masking of inputs, which forward reads: a configuration without it makes another model."""
    model.config.mask_time_prob = model.config.mask_feature_prob = 0.0
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def made_batch(subject: Subject, rows: int, length: int, shift: int) -> Inputs:
    """Return random inputs of the kind of a model."""
    inputs = features(subject, rows, shift)
    if not inputs or subject.kind == "pair":
        choices = 2 if "MultipleChoice" in subject.cls.__name__ else 1
        ids = subject.ids(rows * choices, length, shift)
        inputs["input_ids"] = ids.unflatten(0, (rows, choices)) if choices > 1 else ids
    if subject.kind == "seq2seq":
        inputs["decoder_input_ids"] = subject.ids(rows, length, shift + 50)
    return inputs


def features(subject: Subject, rows: int, shift: int) -> Inputs:
    """Return random pixels or sound, of the size that a configuration names."""
    generator = torch.Generator().manual_seed(subject.seed + shift)
    config, name = subject.config, subject.cls.main_input_name
    shapes: dict[str, tuple[int, ...]] = {}
    if subject.kind in ("image", "pair"):
        vision = getattr(config, "vision_config", config)
        side = getattr(vision, "image_size", None) or 32
        sides = (side, side) if isinstance(side, int) else tuple(side)
        shapes["pixel_values"] = (getattr(vision, "num_channels", 3), *sides)
    elif name == "input_features":
        frames = 2 * getattr(config, "max_source_positions", 20)
        channels = getattr(config, "input_feat_per_channel", None)  # the last dimension of Speech2Text, not the first
        shapes[name] = (frames, channels) if channels else (getattr(config, "num_mel_bins", 80), frames)
    elif name == "input_values":
        shapes[name] = (800,)
    return {name: torch.randn(rows, *shape, generator=generator) for name, shape in shapes.items()}
