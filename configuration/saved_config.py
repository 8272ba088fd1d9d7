"""The check of a config that was read from a file, which may be anybody's."""

import json
import re

# By these fields transformers loads kernels, which are code, or other weights; only a person may choose them. The files
# of MPT say "torch", which is no kernel.
LOADED = re.compile(
    r'"(_?(?:attn|experts)_imp\w+|transformers_weights)": '
    r'(?!"(?:eager|sdpa|flex_attention|torch|grouped_mm|batched_mm)")(".*?"|{.*?})'
)


def check_saved_config(saved: dict[str, object]) -> dict[str, object]:
    """Return a saved config, or raise ValueError where one of its fields, or of its parts, loads code or weights."""
    if named := LOADED.search(json.dumps(saved, default=str, skipkeys=True)):
        raise ValueError(f"{named[1]}={named[2]} of a saved config may load code or other weights; remove it there")
    return saved
