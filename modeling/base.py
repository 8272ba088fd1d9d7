"""The base class of every model: flags for transformers, initialisation, ties, loading and pushing."""

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Signature, signature
from typing import Any, ClassVar, TypeVar, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.utils.generic import ModelOutput

from ..configuration.configuration_base import QkvConfig
from .checks.inputs import check_family
from .checks.keywords import either_cache_name
from .checks.upstream import check_private

Forward = TypeVar("Forward", bound=Callable[..., ModelOutput])


class RemovesPadding(nn.Module):
    """Hold the choice whether layers run on real tokens alone, for a model and all models inside it."""

    _remove_padding: bool | None = None

    @property
    def remove_padding(self) -> bool | None:
        """True to run layers on real tokens alone wherever that is possible, None where it is faster, False nowhere.

        Outputs at real tokens are the same, and zeros at padding; set for all parts of a model.
        """
        return self._remove_padding

    @remove_padding.setter
    def remove_padding(self, wanted: bool | None) -> None:
        for module in self.modules():
            if isinstance(module, RemovesPadding):
                module._remove_padding = wanted


# trf-ignore: TRF013  each family calls post_init, last
class PackageHooks(PreTrainedModel):
    """Let the package add to loading, saving and pushing; a published copy has none of it."""

    load_hook: ClassVar[Callable[..., dict[str, object]] | None] = None
    save_hook: ClassVar[Callable[..., None] | None] = None
    upload_hook: ClassVar[Callable[..., None] | None] = None

    @classmethod
    @wraps(PreTrainedModel.from_pretrained.__func__)  # type: ignore[attr-defined]  # the function of a class method
    def from_pretrained(  # type: ignore[override]  # wraps keeps its signature where mypy does not look
        cls, pretrained_model_name_or_path: object, *model_args: object, **kwargs: object
    ) -> Any:
        """Load a model as transformers does; the package checks its source first, with QKV_VERIFY=1 every file."""
        options = kwargs if cls.load_hook is None else cls.load_hook(pretrained_model_name_or_path, kwargs)
        inherited: Callable[..., object] = super().from_pretrained
        return inherited(pretrained_model_name_or_path, *model_args, **options)

    def save_pretrained(
        self, save_directory: object, is_main_process: bool = True, *args: object, **kwargs: object
    ) -> None:
        """Save a model as transformers does; the package adds its code, so that the folder loads where qkv is not."""
        inherited: Callable[..., object] = super().save_pretrained
        inherited(save_directory, is_main_process, *args, **kwargs)
        if (hook := type(self).save_hook) and is_main_process:
            hook(self, save_directory)

    def _upload_modified_files(self, working_dir: object, repo_id: str, *args: object, **kwargs: object) -> Any:
        if (hook := type(self).upload_hook) and not self.is_remote_code():
            hook(self, working_dir, repo_id, **kwargs)
        inherited: Callable[..., object] = super()._upload_modified_files
        return inherited(working_dir, repo_id, *args, **kwargs)


# trf-ignore: TRF013  each family calls post_init, last
class QkvPreTrainedModel(PackageHooks, RemovesPadding):
    """Base of every model: supported features, initial weights, tied weights.

    Every model can be built on the meta device and filled from a checkpoint alone: no buffer carries anything.
    """

    config: QkvConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True
    _skip_keys_device_placement = ["past_key_values", "cache"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Refuse a transformers without a name that the class overrides; take the cache by either name in `forward`."""
        super().__init_subclass__(**kwargs)
        for owner in cls.__mro__:
            check_private(owner, cls)
        if "forward" in vars(cls):
            cls.forward = either_cache_name(cls.forward)

    def __init__(self, config: QkvConfig, *inputs: object, **kwargs: object) -> None:
        check_family(self, config)
        config.validate()  # it may have been edited since it was made
        super().__init__(config, *inputs, **kwargs)

    def post_init(self) -> None:
        """Finish construction; ties are set where transformers reads them without asking: before it saves."""
        self._tied_weights_keys = self.tied_parameters()
        super().post_init()
        freeze_unread(self)

    def activation_checkpointing_enable(
        self, activation_checkpointing_kwargs: dict[str, object] | None = None, *args: object, **kwargs: object
    ) -> None:
        """Recompute layers in the backward pass, as transformers does; reentrant checkpoints are refused.

        They detach only the tensors among a module's arguments, and miss those in a layer's context.
        """
        if (activation_checkpointing_kwargs or {}).get("use_reentrant"):
            raise ValueError("use_reentrant=True misses gradients of score biases and memory; set use_reentrant=False")
        inherited: Callable[..., object] = super().activation_checkpointing_enable
        inherited(activation_checkpointing_kwargs, *args, **kwargs)

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        """Return whether a config of this class may have experts, which transformers reads off the text of one file."""
        return hasattr(cls.config_class, "num_experts")

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialise a module; `init_parameters(std)` initialises parameters outside torch's layers."""
        super()._init_weights(module)
        if init_parameters := getattr(module, "init_parameters", None):
            init_parameters(self.config.initializer_range)

    def _initialize_missing_keys(self, is_quantized: bool) -> None:
        """Initialise missing parameters; those that no rule initialises are built once more."""
        absent = [item for item in self.named_parameters() if not getattr(item[1], "_is_hf_initialized", False)]
        given = {name: value._version for name, value in absent}
        super()._initialize_missing_keys(is_quantized)
        untouched = [(name, value) for name, value in absent if value._version == given[name]]
        if untouched and not is_deepspeed_zero3_enabled():  # whose third stage builds models with their values
            built = type(self)(self.config)
            for name, value in untouched:
                init.copy_(value, built.get_parameter(name))  # which leaves a loaded one as it is
        freeze_unread(self)

    def recorded(self) -> dict[str, bool]:
        """Return the recording flags of this config, which the configs of inner stacks lack."""
        return {flag: True for flag in ("output_attentions", "output_hidden_states") if getattr(self.config, flag)}

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Return the ties that hold for this config; transformers asks before it loads, saves or moves weights."""
        return super().get_expanded_tied_weights_keys(all_submodels=True) if all_submodels else self.tied_parameters()

    def tied_parameters(self) -> dict[str, str]:
        """Return {tied parameter: its source}, none by default."""
        return {}


def freeze_unread(model: nn.Module) -> None:
    """Freeze parameters that no loss reaches, for whose gradients DDP would wait; loading unfreezes all.

    Each part's `freeze_unread()` is called after those of the parts inside it.
    """
    for part in reversed([*model.modules()]):
        if freeze := getattr(part, "freeze_unread", None):
            freeze()


def can_return_tuple(forward: Forward) -> Forward:
    """Turn a head's output into a tuple when `return_dict=False` or the config says so.

    transformers' decorator of this name lets the model inside return a tuple as well, which a head cannot read.
    """

    @wraps(forward)
    def wrapper(self: PreTrainedModel, *args: object, return_dict: bool | None = None, **kwargs: object) -> object:
        output = forward(self, *args, return_dict=True, **kwargs)
        wanted = self.config.return_dict if return_dict is None else return_dict
        return output if wanted else output.to_tuple()

    return cast(Forward, wrapper)  # without `return_dict`


def inputs_of(model_class: type[nn.Module]) -> Callable[[Forward], Forward]:
    """Let the forward of a head take the inputs of its model, by name or place, with those of its own after embeddings.

    They all are in its signature, where Trainer and `generate` look them up.
    """
    *inputs, rest = signature(model_class.forward).parameters.values()
    place = 1 + max(index for index, each in enumerate(inputs) if each.name.endswith("inputs_embeds"))

    def decorate(forward: Forward) -> Forward:
        _, *own, _ = signature(forward).parameters.values()
        parameters = [*inputs[:place], *own, *inputs[place:], rest]
        names = [each.name for each in parameters[1:-1]]

        @wraps(forward)
        def wrapper(self: PreTrainedModel, *args: object, **kwargs: object) -> object:
            if len(args) > len(names):
                raise TypeError(f"forward takes {len(names)} inputs, got {len(args)}; give them by name")
            return forward(self, **dict(zip(names, args, strict=False)), **kwargs)

        typed: Any = wrapper
        typed.__signature__ = Signature(parameters)
        return typed

    return decorate


def tensor_of(inputs: Mapping[str, object], name: str) -> Tensor | None:
    """Return one of the inputs of a model that is a tensor."""
    return cast("Tensor | None", inputs.get(name))


def exactly_one(**given: object) -> None:
    """Raise unless exactly one of the named inputs is not None."""
    if sum(value is not None for value in given.values()) != 1:
        present = " and ".join(name for name, value in given.items() if value is not None) or "none"
        raise ValueError(f"give exactly one of {' and '.join(given)}; got {present}")
