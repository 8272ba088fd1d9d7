"""The vocabulary: one Literal per exchangeable axis, known without torch.

A word here is a row of the table of the same axis in `modeling/` (a test keeps the two equal).
"""

from typing import Literal, get_args

# Position encodings by where they act: on the stack's input, looked up in a table that ends or computed for any
# position; as a rotation of queries and keys; as a bias of each head's scores; on what queries and keys are projected
# from. Whatever the rest of the package has to know of an encoding follows from the groups its word stands in.
TablePositionName = Literal["learned", "grid", "learned_and_t5"]
SinusoidalPositionName = Literal["sinusoidal", "sinusoidal_concat", "sinusoidal_t2t"]
RotaryPositionName = Literal["rope", "xpos"]
BiasPositionName = Literal["alibi", "t5", "kerple", "learned_and_t5"]
PositionName = Literal["none", TablePositionName, SinusoidalPositionName, RotaryPositionName, BiasPositionName]
# Of text encoders alone: a bias computed from queries, keys and vectors of their distances.
DisentangledPositionName = Literal["disentangled", "learned_and_disentangled"]
TextPositionName = Literal[PositionName, DisentangledPositionName]
# Those of an image's patches, of which one turns by rows and columns.
PatchPositionName = Literal[PositionName, "rope_2d"]
# Those of a detector's image encoder, and of its decoder.
ImagePositionName = Literal["sinusoidal_2d", "sinusoidal_2d_and_input", "none"]
ObjectQueryPositionName = Literal["object_queries"]
TABLE_POSITIONS: tuple[str, ...] = (*get_args(TablePositionName), "learned_and_disentangled")
ROTARY_POSITIONS: tuple[str, ...] = (*get_args(RotaryPositionName), "rope_2d")
DISENTANGLED_POSITIONS: tuple[str, ...] = get_args(DisentangledPositionName)
BIAS_POSITIONS: tuple[str, ...] = (*get_args(BiasPositionName), *DISENTANGLED_POSITIONS)
# Those that may differ by layer.
LAYER_POSITIONS: tuple[str, ...] = ("none", *ROTARY_POSITIONS, "alibi", "t5", "kerple")

# Attention patterns: those that a backend knows by a flag or a number, and those that need a mask of their own, some of
# them over the rows and columns of a grid.
MasklessPatternName = Literal["full", "sliding"]
GridPatternName = Literal["row", "column", "convolutional"]
MaskedPatternName = Literal["dilated", "block_sparse", "random", "strided", "fixed", GridPatternName]
PatternName = Literal[MasklessPatternName, MaskedPatternName]
MASKLESS_PATTERNS: tuple[str, ...] = get_args(MasklessPatternName)
GRID_PATTERNS: tuple[str, ...] = get_args(GridPatternName)

# Attention kernels: softmax of scores, by a backend of transformers, and those that keep a state of one size where
# others keep every key. Whatever follows from that follows from the group.
ParallelKernelName = Literal["linear"]
# Those whose tokens act one after another, by parameters of their own: no encoder and no cross-attention has them.
RecurrentKernelName = Literal["gated_delta"]
StateKernelName = Literal[ParallelKernelName, RecurrentKernelName]
KernelName = Literal["softmax", StateKernelName]
STATE_KERNELS: tuple[str, ...] = get_args(StateKernelName)
RECURRENT_KERNELS: tuple[str, ...] = get_args(RecurrentKernelName)
FeatureMapName = Literal["elu", "relu"]
ProjectionName = Literal["q_proj", "k_proj", "v_proj", "o_proj"]
NormName = Literal["layer", "rms"]
NormPositionName = Literal["before", "after", "inside", "sandwich"]
NormGainName = Literal["direct", "zero_centered", "none"]
QueryKeyNormName = Literal["none", "head", "each_head", "width", "head_after_rotation"]
DenseFeedForwardName = Literal["mlp", "glu"]
FeedForwardName = Literal[DenseFeedForwardName, "moe"]
RouterName = Literal["softmax", "sigmoid"]
FrontendName = Literal["tokens", "patches", "spectrogram"]
# What the two halves of a detector read.
DetectionFrontendName = Literal["feature_map", "patches", "object_queries"]
ConvolutionName = Literal["plain", "gated"]
FrameLayoutName = Literal["frames_first", "bins_first"]
FramePaddingName = Literal["zeroed", "masked", "unmasked"]
TranscriptionName = Literal["short_form", "long_form"]
TextPoolingName = Literal["first", "dense", "mean", "first_norm", "end", "highest"]
PairedTextPoolingName = Literal[TextPoolingName, "last"]
OuterProductName = Literal["mean", "difference"]
ContactHeadName = Literal["attention", "outer_product"]
ImagePoolingName = Literal["first", "dense", "mean", "distilled", "first_mean", "first_norm", "attention"]
CellName = Literal["gru", "lstm"]
AlignmentName = Literal["none", "additive", "dot"]
ReadoutName = Literal["none", "tanh", "maxout"]
ActivationName = Literal[
    "relu",
    "relu2",
    "xielu",
    "gelu",
    "gelu_new",
    "gelu_fast",
    "gelu_pytorch_tanh",
    "gelu_bloom",
    "quick_gelu",
    "silu",
    "tanh",
    "sigmoid",
]
