"""Tiny models of stock transformers with their processors, as people have them in a folder."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    SwinConfig,
    SwinForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
)

from own_runs import WORDS

POSITIONS = 12  # fewer than the tokens that long texts have
SHAPE = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
WHISPER = {"layers": 1, "attention_heads": 2, "ffn_dim": 12}
LABELS = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def bert(folder: Path, head: type[PreTrainedModel] = BertForSequenceClassification) -> Path:
    """BERT for two classes, or with another head, and a tokenizer that does not say how much is read."""
    vocabulary = {word: number for number, word in enumerate((*MARKS, *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    special = {f"{kind}_token": word for kind, word in names.items()}
    config = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=POSITIONS, **SHAPE, **LABELS)
    return saved(folder, head(config), PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special))


def gpt2(folder: Path) -> Path:
    """GPT-2, whose tokenizer pads with nothing."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {word: number for number, word in enumerate(("<|endoftext|>", *letters))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    end = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    config = GPT2Config(
        vocab_size=len(vocabulary), n_embd=8, n_layer=1, n_head=2, n_positions=32, bos_token_id=0, eos_token_id=0
    )
    return saved(folder, GPT2LMHeadModel(config), PreTrainedTokenizerFast(tokenizer_object=tokenizer, **end))


def vit(folder: Path) -> Path:
    """ViT for two classes of images of 8 pixels."""
    model = ViTForImageClassification(ViTConfig(**SHAPE, **LABELS, image_size=8, patch_size=4))
    return saved(folder, model, ViTImageProcessorPil(size={"height": 8, "width": 8}))


def swin(folder: Path) -> Path:
    """Swin, which attends within windows, for two classes of images of 16 pixels."""
    config = SwinConfig(image_size=16, patch_size=4, embed_dim=8, depths=[1], num_heads=[2], window_size=2, **LABELS)
    return saved(folder, SwinForImageClassification(config), ViTImageProcessorPil(size={"height": 16, "width": 16}))


def whisper(folder: Path) -> Path:
    """Whisper, whose recordings are padded to a second, and whose tokenizer begins texts as its decoder does."""
    start, plain, end = "<|startoftranscript|>", "<|notimestamps|>", "<|endoftext|>"
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), start, plain, end]
    vocabulary = {word: number for number, word in enumerate(words)}
    shape = {f"{part}_{what}": size for part in ("encoder", "decoder") for what, size in WHISPER.items()}
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), vocabulary[end])
    config = WhisperConfig(
        vocab_size=len(words), d_model=8, num_mel_bins=6, max_source_positions=50, max_target_positions=20,
        decoder_start_token_id=vocabulary[start], **shape, **ends,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config)
    model.generation_config.update(
        no_timestamps_token_id=vocabulary[plain], suppress_tokens=[], begin_suppress_tokens=[]
    )
    WhisperFeatureExtractor(feature_size=6, chunk_length=1).save_pretrained(folder)
    return saved(folder, model, WhisperTokenizer(vocab=vocabulary, merges=[], unk_token=end, pad_token=end))


def saved(folder: Path, model: PreTrainedModel, processor: object) -> Path:
    """Write a model with weights that tell classes apart, and its processor."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)  # type: ignore[attr-defined]
    return folder


def masked_bert(folder: Path) -> Path:
    """BERT that fills masks."""
    return bert(folder, BertForMaskedLM)
