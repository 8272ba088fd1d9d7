"""The contenders: programs that run the same weights on the same batch."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import filter as matching
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel

import qkv
from qkv.modeling.conversion.convert import chosen, official_conversions
from qkv.modeling.conversion.weights import convert
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.lab.benchmarking.candidate import Candidate
from qkv.scripts.lab.benchmarking.plain_decoder import plain_decoder
from qkv.scripts.lab.benchmarking.timm_vit import timm_vit
from qkv.scripts.lab.benchmarking.torch_encoder import torch_encoder
from qkv.scripts.lab.benchmarking.workloads import Step, Workload
from qkv.scripts.lab.benchmarking.x_transformers_models import x_transformers

OURS, THEIRS = "qkv", "transformers"


@dataclass(frozen=True)
class Contender:
    """A program, how it takes over a stock model, the models it has (all by default), if it compiles, must be asked."""

    about: str
    take_over: Callable[[PreTrainedModel, Workload], Candidate]
    runs: Mapping[str, Sequence[Step]] = field(default_factory=dict)
    compiled: bool = False
    asked: bool = False

    def has(self, workload: Workload) -> bool:
        """Tell whether it can run a workload."""
        if workload.step.startswith("load"):
            return False  # who loads is said in loading.py
        others = not self.runs and not workload.model.official.startswith("Qkv")
        return others or workload.step in self.runs.get(workload.model.official, ())


BERTS: Mapping[str, Sequence[Step]] = {"BertForMaskedLM": ["train"], "BertModel": ["encode"]}


def ours(stock: PreTrainedModel, workload: Workload, opened: Sequence[str] = ()) -> Candidate:
    """Convert a stock model to qkv, and open fast paths of its stack that are closed until they are measured."""
    model = qkv.from_transformers(stock)
    for path in opened:
        setattr(model.base_model, path, True)
    table = chosen(official_conversions(stock), stock.config).rows
    return Candidate(model, lambda gradients: convert(table, gradients, model.config, reading=True))


def theirs(stock: PreTrainedModel, workload: Workload) -> Candidate:
    """Copy a stock model."""
    return Candidate(copy.deepcopy(stock), lambda gradients: gradients)


def with_kernel(stock: PreTrainedModel, workload: Workload, kernel: str) -> Candidate:
    """Build a decoder of this package with a kernel; tests/gpu compare its results with those of a CPU."""
    config = type(stock.config)(**{**workload.model.config, "kernel": kernel})
    return Candidate(type(stock)(config).to(stock.device, stock.dtype), None)


CONTENDERS = {
    OURS: Contender("this package, called as its users call it", ours),
    THEIRS: Contender("transformers' own class, with sdpa where it has it", theirs),
    "qkv-compiled": Contender("this package under torch.compile", ours, compiled=True),
    "transformers-compiled": Contender("transformers' own class under torch.compile", theirs, compiled=True),
    "x-transformers": Contender(
        "the library, installed with qkv[benchmark]",
        x_transformers,
        {**BERTS, "GPT2LMHeadModel": ["train", "generate"]},
    ),
    "torch-encoder": Contender(
        "torch.nn.TransformerEncoder; nested tensors skip padding in inference", torch_encoder, BERTS
    ),
    "plain-decoder": Contender(
        "nanoGPT's shape, written with plain modules", plain_decoder, {"GPT2LMHeadModel": ["train"]}
    ),
    "plain-decoder-compiled": Contender(
        "the same under torch.compile, as nanoGPT trains", plain_decoder, {"GPT2LMHeadModel": ["train"]}, compiled=True
    ),
    "timm": Contender(
        "the library's ViT, installed with qkv[benchmark]", timm_vit, {"ViTForImageClassification": ["train", "encode"]}
    ),
}
# Fast paths that no GPU was measured with: what these contenders show decides whether they are open by default.
PATHS = {"one-product": ["one_product"], "cudnn-first": ["cudnn_first"], "both-paths": ["one_product", "cudnn_first"]}
CAUSAL: Mapping[str, Sequence[Step]] = {"GPT2LMHeadModel": ["train"], "LlamaForCausalLM": ["train"]}
for path, opened in PATHS.items():
    about, take_over = f"this package with {' and '.join(opened)}", partial(ours, opened=opened)
    CONTENDERS[f"qkv-{path}"] = Contender(about, take_over, CAUSAL, asked=True)
    CONTENDERS[f"qkv-{path}-compiled"] = Contender(f"{about}, compiled", take_over, CAUSAL, compiled=True, asked=True)


DECODERS: Mapping[str, Sequence[Step]] = {"QkvDecoderModel": ["encode"], "QkvDecoderForCausalLM": ["train"]}
# The first is the reference of the other.
for kernel in ("linear", "gated_delta"):
    CONTENDERS[kernel] = Contender(f"this package's decoder by {kernel}", partial(with_kernel, kernel=kernel), DECODERS)


def chosen_contenders(words: Sequence[str]) -> list[str]:
    """Return the contenders that names or patterns mean, without one all that need not be asked for.

    transformers is always among them, for it is what others equal.
    """
    for word in words:
        if not matching(CONTENDERS, word):
            raise ValueError(f"there is no contender {word!r}; {did_you_mean(word, [*CONTENDERS], 'contenders')}")
    meant = {name for word in words for name in matching(CONTENDERS, word)}
    return [name for name, each in CONTENDERS.items() if name in meant or name == THEIRS or not (words or each.asked)]


def stock_model(workload: Workload, seed: int, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """Build the stock model of a workload, which ends no text by itself."""
    import transformers

    shape = workload.model
    official: Any = getattr(qkv if shape.official.startswith("Qkv") else transformers, shape.official)
    torch.manual_seed(seed)
    config = official.config_class(**shape.config)
    config._attn_implementation = "sdpa" if official._supports_sdpa else "eager"
    model = official(config, **shape.options)
    if model.can_generate():
        settings = model.generation_config
        settings.eos_token_id = settings.forced_eos_token_id = None
        settings.pad_token_id = config.pad_token_id or 0
    # Training keeps its weights in single precision, and computes in a lower one.
    return model.to(device, torch.float32 if workload.step == "train" else dtype)


def candidate(name: str, stock: PreTrainedModel, workload: Workload) -> Candidate:
    """Return a contender's model; AbsentError where it has none."""
    contender = CONTENDERS[name]
    taken = contender.take_over(stock, workload)
    if contender.compiled:
        compile_model(taken.model, workload)
    return taken


def compile_model(model: Any, workload: Workload) -> None:
    """Compile a model in place; where it generates, a step with a static cache, as `generate` does on GPUs."""
    if workload.step != "generate":
        model.compile()
        return
    from transformers import CompileConfig

    settings: Any = CompileConfig(mode="default" if model.device.type == "cpu" else "reduce-overhead")
    settings._compile_all_devices = True
    model.generation_config.cache_implementation = "static"
    model.generation_config.compile_config = settings
