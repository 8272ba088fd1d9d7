"""Private names of transformers that models stand on, checked when they are imported.

A release that lacks one would not fail by itself: it would call no method that overrides it, and read no flag.
"""

import transformers
from transformers import PreTrainedConfig

# Releases that have all of them.
RELEASES = "transformers>=5.23,<5.25"
PRIVATE = {
    "GenerationMixin": "_get_logits_processor _prepare_cache_for_generation _prepare_decoder_input_ids_for_generation",
    "PreTrainedConfig": "_attn_implementation _experts_implementation _output_attentions",
    "PreTrainedModel": "_can_compile_fullgraph _can_record_outputs _can_set_experts_implementation _fsdp_plan "
    "_init_weights _initialize_missing_keys _keep_in_fp32_modules _keep_in_fp32_modules_strict _no_split_modules "
    "_pp_plan _skip_keys_device_placement _supports_attention_backend "
    "_supports_flash_attn _supports_flex_attn _supports_sdpa _tied_weights_keys _tp_plan _upload_modified_files",
}


def check_private(owner: object, user: type | None = None) -> None:
    """Raise ImportError where an owner lacks one of its private names; with a `user`, one that this class overrides."""
    title = getattr(owner, "__name__", type(owner).__name__)
    for name in PRIVATE.get(title, "").split():
        if not hasattr(owner, name) and (user is None or hasattr(user, name)):
            raise ImportError(
                f"transformers {transformers.__version__} has no {title}.{name}, on which this version of qkv stands; "
                f"install {RELEASES} or a newer qkv"
            )


check_private(PreTrainedConfig())
