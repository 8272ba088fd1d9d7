"""Generation: caches by either name, masks made ahead, faster modules meanwhile, a check that no token is lost."""

from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, cast
from weakref import WeakKeyDictionary

import transformers
from torch import Tensor, nn
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.generation import EncoderRepetitionPenaltyLogitsProcessor

from ..configuration.configuration_stack import StackConfig
from .checks.keywords import CACHE, OLD_NAME, either_cache_name, rename_cache
from .execution import stand_ins
from .kernels.growing_cache import make_room
from .kernels.state_cache import hold_states
from .masks.masking import PreparedMasks, build_masks
from .position.token_layout import MaskSizes, Packing


class QkvGenerationMixin(GenerationMixin):
    """Generate as transformers does, with the same tokens, while faster modules stand in for those of the model.

    `lay_out_weights = False` on a model forbids copies of its weights.
    """

    lay_out_weights: bool = True

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generate as transformers does, without labels; the cache has either name, and no weight may change."""
        with self.laid_out(kwargs.get("assistant_model")):
            return super().generate(*args, **generation_options(self, args, kwargs))

    def laid_out(self, *others: nn.Module | None) -> AbstractContextManager[None]:
        """Let faster modules stand in for those of this model and of others that help it, unless that is forbidden."""
        return stand_ins(cast(nn.Module, self), *others) if self.lay_out_weights else nullcontext()

    @wraps(GenerationMixin.prepare_inputs_for_generation)
    def prepare_inputs_for_generation(self, input_ids: Tensor, *args: object, **kwargs: object) -> dict[str, object]:
        kwargs = without_short_keys(cast(Any, self).config, input_ids, rename_cache(kwargs, CACHE))
        inputs = super().prepare_inputs_for_generation(input_ids, *args, **kwargs)
        check_step(input_ids, inputs, is_first=bool(kwargs.get("is_first_iteration")))
        # PEFT changes these inputs for its prefix, by the name in the signature.
        return rename_cache(inputs, OLD_NAME)

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Prepare the cache as transformers does, with room for more tokens; windows and other kinds stay."""
        given = model_kwargs.get(CACHE)
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)  # type: ignore[misc]
        cache = model_kwargs.get(CACHE)
        hold_states(cast(Any, self).config.get_text_config(decoder=True), cache)
        if given is None and cache is not None:
            if generation_config.is_assistant:  # before its layers are exchanged
                cache.activate_past_recording()
            make_room(cache, generation_config.num_beams or 1)

    def _get_logits_processor(self, *args: Any, **kwargs: Any) -> Any:
        """Return transformers' processors; the one that favours tokens of the source does not favour its padding."""
        processors = super()._get_logits_processor(*args, **kwargs)  # type: ignore[misc]
        mask = (kwargs.get("model_kwargs") or {}).get("attention_mask")
        for each in processors:
            if isinstance(each, EncoderRepetitionPenaltyLogitsProcessor) and mask is not None:
                each.encoder_input_ids = cast(Any, without_padding(each.encoder_input_ids, mask))
        return processors

    @staticmethod
    @either_cache_name
    def create_masks_for_generate(
        config: StackConfig,
        inputs_embeds: Tensor,
        attention_mask: Tensor | None,
        past_key_values: Cache,
        position_ids: Tensor | None = None,
        **kwargs: object,
    ) -> PreparedMasks:
        """Build the masks of a static cache ahead of a compiled step, for any pattern and position encoding."""
        config = cast(StackConfig, config.get_text_config(decoder=True))
        hold_states(config, past_key_values)
        sizes = MaskSizes.of(config, inputs_embeds.shape[1], past_key_values)
        built = build_masks(config, inputs_embeds, sizes, attention_mask, Packing.of(position_ids, {}))
        return PreparedMasks(built.masks, built.key_positions)


def generation_options(model: GenerationMixin, args: tuple[object, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `generate` by transformers' names, without the labels that Seq2SeqTrainer leaves in.

    Encoder-decoders read a prompt at once: transformers' chunks would cut the mask of the source. Longrope asks
    for the length of the text.
    """
    own = cast(PreTrainedModel, model)
    given = (*args, *options.values(), own.generation_config)
    settings = next(each for each in given if isinstance(each, GenerationConfig))
    chunked = options.get("prefill_chunk_size", settings.prefill_chunk_size)
    at_once = own.config.is_encoder_decoder or bool(getattr(own.config, "lengths_of_longrope", []))
    whole = {"prefill_chunk_size": None} if chunked and at_once else {}
    return {name: value for name, value in rename_cache(options, CACHE).items() if name != "labels"} | whole


def without_padding(ids: Tensor, mask: Tensor) -> Tensor:
    """Return tokens (B, T) with the first real token of each row in place of padding; the mask may have beams."""
    real = mask[:: len(mask) // len(ids)] != 0
    return ids.where(real, ids.gather(1, real.int().argmax(1, keepdim=True)))


def without_short_keys(config: Any, input_ids: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """Drop a cache of keys that were rotated by short frequencies, where longrope takes long ones from this step on.

    All tokens are read again, as by stock Phi-3, so this needs their ids. The longest text decides.
    """
    count, places = options.get("next_sequence_length"), options.get("position_ids")
    lengths = getattr(getattr(config, "decoder", config), "lengths_of_longrope", ())
    if not lengths or not count or options.get(CACHE) is None:
        return options
    end = input_ids.shape[1] if places is None else int(places.max()) + 1
    passed = [length for length in lengths if 0 < end - count <= length < end]
    if passed and input_ids.shape[1] < end:
        why = f"a text passes original_max_position_embeddings={passed[0]}, and all of it has to be read again"
        raise ValueError(f"{why}; give input_ids, not inputs_embeds")
    return {**options, CACHE: None, "next_sequence_length": None} if passed else options


# The tokens that were handed over beside a cache, where these were all: of a first step, as a rule.
HANDED_OVER: WeakKeyDictionary[Cache, int] = WeakKeyDictionary()


def check_step(input_ids: Tensor, inputs: dict[str, object], *, is_first: bool) -> None:
    """Raise RuntimeError unless a step has each token so far (B, T) once: from its inputs or from its cache.

    A release of transformers that hands either over in another way would otherwise write other tokens.
    """
    names = ("decoder_input_ids", "input_ids", "inputs_embeds")
    handed = next((given.shape[1] for name in names if isinstance(given := inputs.get(name), Tensor)), 0)
    total, caches = input_ids.shape[1], [value for value in inputs.values() if isinstance(value, Cache)]
    held = [cached_tokens(cache) for cache in caches]
    again = [HANDED_OVER.get(cache) == total - 1 <= count for cache, count in zip(caches, held, strict=True)]
    if handed + max(held, default=0) < total or (handed == total > 1 and not is_first and any(again)):
        raise RuntimeError(
            f"generate of transformers {transformers.__version__} handed over {handed} of {total} tokens, a cache of "
            f"{held or 'none'}, so that some are lost or read twice; use_cache=False generates without a cache"
        )
    HANDED_OVER.update(dict.fromkeys(caches, total) if handed == total else {})


def cached_tokens(cache: Cache) -> float:
    """Return the number of tokens in a cache; infinity where it is on an accelerator, which would stall, and not 0."""
    part: Any = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    # A stage of a pipeline fills the layers it has.
    filled = next((index for index, layer in enumerate(part.layers) if layer.is_initialized), None)
    length: int | Tensor = 0 if filled is None else part.get_seq_length(filled)
    return float("inf") if isinstance(length, Tensor) and length.device.type != "cpu" else int(length)
