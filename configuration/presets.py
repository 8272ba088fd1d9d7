"""Papers as differences from the defaults: each preset returns a config and takes any field as a keyword."""

from collections.abc import Callable

from .configuration_base import Config
from .configuration_decoder import QkvDecoderConfig
from .configuration_detection import QkvDetectionConfig
from .configuration_dual_encoder import QkvDualEncoderConfig
from .configuration_encoder import QkvEncoderConfig
from .configuration_encoder_decoder import QkvEncoderDecoderConfig
from .configuration_image_encoder import QkvImageEncoderConfig
from .configuration_pair import QkvPairConfig
from .configuration_recurrent import QkvRecurrentConfig
from .configuration_speech_encoder_decoder import QkvSpeechEncoderDecoderConfig
from .fields import Fields

HELPERS = ("names", "build", "sized", "part", "dropout", "llama")


def names() -> list[str]:
    """List every preset, by the name of its function."""
    own = (name for name, value in globals().items() if getattr(value, "__module__", None) == __name__)
    return sorted(name for name in own if name not in HELPERS)


def build(config_class: type[Config], fields: Fields) -> Config:
    """Return a config of these fields, whose names and values it checks itself."""
    return config_class(**fields)


def sized(
    preset: Callable[..., Config], paper: str, width: int, layers: int, heads: int, **others: int
) -> Callable[..., Config]:
    """Return a preset of another size."""
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, **others}

    def config_of_size(**differences: object) -> Config:
        return preset(**{**sizes, **differences})

    config_of_size.__doc__ = paper
    return config_of_size


def part(name: str, own: Fields, differences: Fields) -> Fields:
    """Return the fields of a part, which `differences` may say under its name."""
    return {**own, **differences.pop(name, {})}


def dropout(rate: float) -> dict[str, float]:
    """Set one rate on embeddings, attention weights and branches, as most papers do."""
    return {"embedding_dropout": rate, "attention_dropout": rate, "residual_dropout": rate}


def bert_base(**differences: object) -> QkvEncoderConfig:
    """BERT base. Devlin et al. 2019, §3, https://arxiv.org/abs/1810.04805"""
    post_norm = {"norm_first": False, "embedding_norm": True, "norm_eps": 1e-12}
    heads = {"pooling": "dense", "classifier_dropout": 0.1}
    return build(QkvEncoderConfig, {**post_norm, **dropout(0.1), **heads, "type_vocab_size": 2, **differences})


bert_large = sized(bert_base, "BERT large. Devlin et al. 2019, §3, https://arxiv.org/abs/1810.04805", 1024, 24, 16)


def roberta_base(**differences: object) -> QkvEncoderConfig:
    """RoBERTa base: BERT with byte-level BPE and positions that start at 2. Liu et al. 2019, §3,
    https://arxiv.org/abs/1907.11692"""
    tokens = {"vocab_size": 50265, "type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    own = {"position_offset": 2, "norm_eps": 1e-5, "pooling_dropout": 0.1}
    return bert_base(**{**tokens, **own, **differences})


def longformer_base(**differences: object) -> QkvEncoderConfig:
    """Longformer base: RoBERTa for 4,096 tokens, windows of 256 on either side, global tokens with projections of their
    own. Beltagy et al. 2020, §3.1 and §5, https://arxiv.org/abs/2004.05150"""
    windows = {"pattern": "sliding", "sliding_window": 257, "global_projections": True}
    return roberta_base(**{**windows, "max_position_embeddings": 4096, **differences})


def bigbird_base(**differences: object) -> QkvEncoderConfig:
    """BigBird base: BERT for 4,096 tokens, in each layer near blocks of 64, 3 random ones and the first, which is
    global; the paper's last block is not. Zaheer et al. 2020, §2 and §4, https://arxiv.org/abs/2007.14062"""
    tokens = {"vocab_size": 50358, "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 4096}
    return bert_base(**{**tokens, "hidden_act": "gelu_new", "pattern": "random", **differences})


def esm2_t6_8m(**differences: object) -> QkvEncoderConfig:
    """ESM-2 of 8 million parameters, for proteins. Lin et al. 2023, https://doi.org/10.1126/science.ade2574"""
    sizes = {"hidden_size": 320, "num_hidden_layers": 6, "num_attention_heads": 20, "max_position_embeddings": 1026}
    tokens = {"vocab_size": 33, "pad_token_id": 1, "eos_token_id": 2, "mask_token_id": 32}
    words = {"position": "rope", "scale_embedding": "token_dropout", "contact_head": "attention"}
    return build(QkvEncoderConfig, {**sizes, **tokens, **words, **differences})


def evoformer_small(**differences: object) -> QkvPairConfig:
    """8 of the 48 blocks of AlphaFold 2's Evoformer, as wide as these, with 3 recycles and the letters of ESM; without
    templates, the stack of extra sequences and coordinates. Jumper et al. 2021, supplement, §1.5, §1.6 and §1.9 to
    §1.11, https://doi.org/10.1038/s41586-021-03819-2"""
    width = {"hidden_size": 256, "num_attention_heads": 8, "pair_hidden_size": 128, "num_pair_attention_heads": 4}
    words = {"column_attention": True, "num_recycles": 3, "final_norm": False, "pair_dropout": 0.25}
    return build(QkvPairConfig, {"num_hidden_layers": 8, **width, **words, **differences})


def gpt2(**differences: object) -> QkvDecoderConfig:
    """GPT-2, 124M. Radford et al. 2019, §2.3, Language Models are Unsupervised Multitask Learners"""
    tokens = {"bos_token_id": 50256, "eos_token_id": 50256, "max_position_embeddings": 1024, "hidden_act": "gelu_new"}
    return build(QkvDecoderConfig, {**tokens, **dropout(0.1), "classifier_dropout": 0.1, **differences})


gpt2_medium = sized(gpt2, "GPT-2, 355M. Radford et al. 2019, table 2", 1024, 24, 16)
gpt2_large = sized(gpt2, "GPT-2, 774M. Radford et al. 2019, table 2", 1280, 36, 20)
gpt2_xl = sized(gpt2, "GPT-2, 1.5B. Radford et al. 2019, table 2", 1600, 48, 25)


def llama(**differences: object) -> QkvDecoderConfig:
    """Fields of every Llama: pre-norm RMS, rotary positions, gated feed-forward, no biases. Touvron et al. 2023,
    §2.2, https://arxiv.org/abs/2302.13971"""
    plain = {"attention_bias": False, "mlp_bias": False, "norm": "rms", "norm_eps": 1e-5}
    gated = {"feed_forward": "glu", "hidden_act": "silu", "position": "rope"}
    return build(QkvDecoderConfig, {**plain, **gated, **differences})


def llama_3_2_1b(**differences: object) -> QkvDecoderConfig:
    """Llama 3.2, 1B. Grattafiori et al. 2024, §3.2, https://arxiv.org/abs/2407.21783"""
    width = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
    tokens = {"vocab_size": 128256, "bos_token_id": 128000, "eos_token_id": 128001, "intermediate_size": 8192}
    scaling = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "original_max_position_embeddings": 8192, **scaling}
    return llama(**{**width, **tokens, "max_position_embeddings": 131072, "rope_parameters": rope, **differences})


def transformer_base(**differences: object) -> QkvEncoderDecoderConfig:
    """The Transformer, base. Vaswani et al. 2017, table 3, https://arxiv.org/abs/1706.03762"""
    width = {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 2048}
    paper = {"position": "sinusoidal", "norm_first": False, "hidden_act": "relu", "attention_bias": False}
    training = {"scale_embedding": True, "label_smoothing": 0.1, **dropout(0.1)}
    return build(QkvEncoderDecoderConfig, {**width, **paper, **training, "vocab_size": 37000, **differences})


def transformer_big(**differences: object) -> QkvEncoderDecoderConfig:
    """The Transformer, big. Vaswani et al. 2017, table 3, https://arxiv.org/abs/1706.03762"""
    width = {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096}
    return transformer_base(**{**width, **dropout(0.3), **differences})


def t5_small(**differences: object) -> QkvEncoderDecoderConfig:
    """T5 v1.0 small: RMS pre-norm, relative buckets, unscaled scores. Raffel et al. 2020, §2.1 and §3.7,
    https://arxiv.org/abs/1910.10683"""
    width = {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 2048}
    plain = {"attention_bias": False, "mlp_bias": False, "norm": "rms", "norm_eps": 1e-6, "hidden_act": "relu"}
    scores = {"position": "t5", "attention_multiplier": 1.0, "scale_logits": True, "head_dim": 64}
    scores |= {"float16_clamp": "branch"}
    rates = {**dropout(0.1), "activation_dropout": 0.1, "final_dropout": 0.1}
    return build(QkvEncoderDecoderConfig, {**width, **plain, **scores, **rates, **differences})


t5_base = sized(t5_small, "T5 v1.0 base. Raffel et al. 2020, §3.7", 768, 12, 12, intermediate_size=3072)


def bart_base(**differences: object) -> QkvEncoderDecoderConfig:
    """BART base: post-norm, learned positions that start at 2. Lewis et al. 2020, §2, https://arxiv.org/abs/1910.13461"""
    width = {"num_hidden_layers": 6, "max_position_embeddings": 1024, "position_offset": 2, "vocab_size": 50265}
    tokens = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    post_norm = {"norm_first": False, "embedding_norm": True, **dropout(0.1)}
    encoder = part("encoder", {"float16_clamp": "layer"}, differences)
    return build(QkvEncoderDecoderConfig, {**width, **tokens, **post_norm, "encoder": encoder, **differences})


def vit_base_16(**differences: object) -> QkvImageEncoderConfig:
    """ViT-B/16 at 224 pixels, 1000 classes. Dosovitskiy et al. 2021, table 1, https://arxiv.org/abs/2010.11929"""
    return build(QkvImageEncoderConfig, {"norm_eps": 1e-12, "num_labels": 1000, **differences})


vit_large_16 = sized(vit_base_16, "ViT-L/16. Dosovitskiy et al. 2021, table 1", 1024, 24, 16)


def deit_small_16(**differences: object) -> QkvImageEncoderConfig:
    """DeiT-S with stochastic depth; `distillation_token=True, pooling="distilled"` for the distilled one. Touvron et
    al. 2021, table 1 and §6, https://arxiv.org/abs/2012.12877"""
    return vit_base_16(**{"hidden_size": 384, "num_attention_heads": 6, "drop_path_rate": 0.1, **differences})


def rnnsearch_50(**differences: object) -> QkvRecurrentConfig:
    """RNNsearch-50: GRUs with additive attention and a maxout readout. Bahdanau et al. 2015, appendix A and B,
    https://arxiv.org/abs/1409.0473"""
    width = {"vocab_size": 30000, "embedding_size": 620, "hidden_size": 1000, "attention_size": 1000}
    readout = {"readout": "maxout", "readout_size": 500}
    return build(QkvRecurrentConfig, {**width, **readout, "initializer_range": 0.01, **differences})


def clip_vit_b32(**differences: object) -> QkvDualEncoderConfig:
    """CLIP with ViT-B/32; `text_config` and `vision_config` may say what differs in one of them. Radford et al. 2021,
    §2.4 and table 20, https://arxiv.org/abs/2103.00020"""
    text: dict[str, object] = {"hidden_size": 512, "num_attention_heads": 8, "pad_token_id": 1}
    image = {"patch_size": 32, "patch_bias": False, "embedding_norm": True, "final_norm": False}
    parts: dict[str, dict[str, object]] = {"text_config": text, "vision_config": {**image, "pooling": "first_norm"}}
    for name, own in parts.items():
        parts[name] = part(name, {field: own[field] for field in own if field not in differences}, differences)
    return build(QkvDualEncoderConfig, {"hidden_act": "quick_gelu", **parts, **differences})


def detr_r50(**differences: object) -> QkvDetectionConfig:
    """DETR with a ResNet-50, 6 and 6 layers, 100 object queries, the 91 category numbers of COCO. Carion et al. 2020,
    §3.2 and appendix A.4, https://arxiv.org/abs/2005.12872"""
    width = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 2048}
    training = {"residual_dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1, "auxiliary_loss": True}
    return build(QkvDetectionConfig, {**width, **training, "num_labels": 91, **differences})


def dalle(*, num_hidden_layers: int = 64, **differences: object) -> QkvDecoderConfig:
    """DALL-E, 12B: captions of 256 tokens, then 32 x 32 of an image; rows and columns, in the last layer windows.
    Ramesh et al. 2021, §2.2 and appendix B.1, https://arxiv.org/abs/2102.12092"""
    layers = ["column" if layer % 4 == 1 else "row" for layer in range(num_hidden_layers - 1)]
    width = {"hidden_size": 3968, "num_hidden_layers": num_hidden_layers, "num_attention_heads": 62}
    # Words of captions, what fills a caption up at each place, and codes of images.
    tokens = {"vocab_size": 16384 + 256 + 8192, "text_length": 256, "max_position_embeddings": 256 + 32 * 32}
    patterns = {"pattern": [*layers, "convolutional"]}
    return build(QkvDecoderConfig, {**width, **tokens, "position": "grid", **patterns, **differences})


def speech_transformer_s(**differences: object) -> QkvSpeechEncoderDecoderConfig:
    """Speech Transformer, small: convolutions that read a fourth of the frames, 12 and 6 layers. Wang et al. 2020,
    fairseq S2T, §2 and table 2 (T-S), https://arxiv.org/abs/2010.05171; Dong et al. 2018, Speech-Transformer"""
    width = {"hidden_size": 256, "num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 2048}
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "vocab_size": 10000}
    whole = {**width, **ids, **dropout(0.1), "hidden_act": "relu", "label_smoothing": 0.1}
    whole |= {"position": "sinusoidal_t2t", "scale_embedding": True}
    sound = part("encoder", {"conv_channels": 512, "apply_spec_augment": True}, differences)
    depth = part("decoder", {"num_hidden_layers": differences.get("num_hidden_layers", 6)}, differences)
    return build(QkvSpeechEncoderDecoderConfig, {**whole, "encoder": sound, "decoder": depth, **differences})


def whisper_tiny(**differences: object) -> QkvSpeechEncoderDecoderConfig:
    """Whisper tiny, multilingual. Radford et al. 2023, §2.2 and table 1, https://arxiv.org/abs/2212.04356"""
    width = {"hidden_size": 384, "num_hidden_layers": 4, "num_attention_heads": 6, "vocab_size": 51865}
    pads = {"pad_token_id": 50257, "bos_token_id": 50257, "eos_token_id": 50257, "decoder_start_token_id": 50258}
    whole: Fields = {"transcription": "long_form", "attention_bias": ["q_proj", "v_proj", "o_proj"]}
    convolutions = {"convolution": "plain", "conv_kernel_sizes": [3, 3], "conv_strides": [1, 2]}
    sound = {**convolutions, "frame_layout": "bins_first", "frame_padding": "unmasked"}
    sound |= {"float16_clamp": "layer"}
    encoder = part("encoder", {**sound, "max_position_embeddings": 1500}, differences)
    decoder = part("decoder", {"max_position_embeddings": 448}, differences)
    whole |= {"encoder": encoder, "decoder": decoder}
    return build(QkvSpeechEncoderDecoderConfig, {**width, **pads, **whole, **differences})


whisper_base = sized(whisper_tiny, "Whisper base. Radford et al. 2023, table 1", 512, 6, 8)
whisper_small = sized(whisper_tiny, "Whisper small. Radford et al. 2023, table 1", 768, 12, 12)
