"""One token after others: a step of generation that reads all that is cached takes no mask.

Shapes: B batch, T tokens, S keys.
"""

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ...configuration.configuration_stack import StackConfig
from ..checks.inputs import can_read_values, check_padding_mask, check_position_ids
from ..context import Memory
from ..execution import Plan, StackInputs, StackParts
from ..masks.masking import AttentionMasks, GivenMask
from ..position.token_layout import NO_PACKING, MaskSizes, Packing


class OneTokenPlan(Plan):
    """Read all that is cached with one token of each row, without a mask."""

    @classmethod
    def of(cls, stack: StackParts, inputs: StackInputs) -> "OneTokenPlan | None":
        """Return the plan of a step of generation that reads every key."""
        hidden, mask, _ = inputs.embedded
        masks = one_token_masks(stack.config, hidden, inputs.sizes, mask, inputs.packing)
        return None if masks is None else cls(stack, inputs, masks)

    def memory(self) -> Memory:
        given = self.inputs.memory
        if given.hidden is None:
            return given
        mask, finished = MEMORY_MASKS.get(given.hidden, (None, None))
        if mask is None or mask is not given.mask:
            finished = super().memory()
            MEMORY_MASKS[given.hidden] = (given.mask, finished.mask)
            return finished
        return given._replace(mask=finished)


# The mask that a caller gave with an encoder's output, and the finished one: all steps of a text have the same.
MEMORY_MASKS: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def one_token_masks(
    config: StackConfig, hidden: Tensor, sizes: MaskSizes, mask: GivenMask, packing: Packing = NO_PACKING
) -> AttentionMasks | None:
    """Return the positions of one token for each row and of all it reads; None where a mask is needed."""
    position_ids = packing.position_ids
    if packing.paged or packing.cu_seq_lens_q is not None or not sees_every_key(config, hidden, sizes, mask):
        return None
    check_position_ids(hidden, position_ids)
    index = sizes.index(hidden.device)[None]
    positions = index if position_ids is None else position_ids
    keys = torch.arange(sizes.total, device=hidden.device) + (positions - index)
    return AttentionMasks(positions, keys, {"full": None})


def sees_every_key(config: StackConfig, hidden: Tensor, sizes: MaskSizes, mask: GivenMask) -> bool:
    """Return True where one token for each row reads all that is cached, of which nothing is padding."""
    # A static cache has room for more than is there, and counts in a tensor.
    if isinstance(sizes.past, Tensor) or sizes.total != sizes.past + 1 or config.pattern != "full":
        return False
    if sizes.length > 1 or not sizes.past:
        return False
    if not config.causal or mask is None:
        return config.causal
    if not isinstance(mask, Tensor) or mask.ndim != 2 or not can_read_values(mask):
        return False
    check_padding_mask(mask, hidden, sizes.past, sizes.length)
    return bool(mask.all())
