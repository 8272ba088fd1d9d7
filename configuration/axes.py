"""The vocabulary: one Literal per exchangeable axis, known without torch.

A word here is a row of the table of the same axis in `modeling/` (a test keeps the two equal).
"""

from typing import Literal

PositionName = Literal[
    "none", "learned", "grid", "sinusoidal", "sinusoidal_concat", "sinusoidal_t2t", "rope", "alibi", "t5"
]
# Those that look positions up in a table, which ends.
TABLED: tuple[PositionName, ...] = ("learned", "grid")
# Those that add to the scores, for each head an amount of its own.
BIASED: tuple[PositionName, ...] = ("alibi", "t5")
PatternName = Literal["full", "sliding", "block_sparse", "row", "column", "convolutional"]
# Those that need no mask of their own: backends know them by a flag or a number.
MASKLESS: tuple[PatternName, ...] = ("full", "sliding")
KernelName = Literal["softmax"]
NormName = Literal["layer", "rms"]
FeedForwardName = Literal["mlp", "glu"]
FrontendName = Literal["tokens", "patches", "spectrogram"]
# Of a detector: what its encoder reads, and how each side knows one place from another.
ImageFrontendName = Literal["feature_map", "patches"]
ImagePositionName = Literal["sinusoidal_2d", "sinusoidal_2d_and_input", "none"]
SlotPositionName = Literal["slots"]
ConvolutionName = Literal["plain", "gated"]
FrameLayoutName = Literal["frames_first", "bins_first"]
FramePaddingName = Literal["silenced", "masked", "heard"]
TranscriptionName = Literal["whole", "windows"]
PoolingName = Literal["first", "dense", "mean", "distilled", "first_mean", "first_norm", "end", "highest"]
CellName = Literal["gru", "lstm"]
AlignmentName = Literal["none", "additive", "dot"]
ReadoutName = Literal["none", "tanh", "maxout"]
ActivationName = Literal[
    "relu", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_bloom", "quick_gelu", "silu", "tanh", "sigmoid"
]
