"""Tiny models of every family and head, and inputs that fit them: the rows of the contract."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

import qkv
import tables
from qkv import configuration as configs

KINDS = tables.beside(__file__)
SIZES, DROPOUT = KINDS["shared"]["sizes"], KINDS["shared"]["dropout"]
VOCABULARY, LABELS, BATCH, LENGTH, SOURCE = 61, 3, 2, 9, 7
PAD, START, END = 1, 2, 3
TEXT = {**SIZES, "vocab_size": VOCABULARY, "max_position_embeddings": 48, "num_labels": LABELS}
IDS = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END}
STARTED = {"decoder_start_token_id": START}
IMAGE = {**SIZES, "image_size": [12, 16], "patch_size": 4, "num_labels": LABELS}

QUERIES = 5
BINS, SEQUENCES = 6, 3


def made(config: str, family: str, kind: str, *fields: dict[str, Any]) -> Any:
    """A config of a kind of `tiny.yaml`, under which other fields stand and over which the last do."""
    *shared, own = fields
    given = {name: value for each in (*shared, KINDS[family][kind], own) for name, value in each.items()}
    return getattr(configs, f"Qkv{config}Config")(**given)


def encoder(kind: str = "bert", **fields: Any) -> configs.QkvEncoderConfig:
    return made("Encoder", "encoder", kind, TEXT, IDS, fields)


def image_encoder(kind: str = "vit", **fields: Any) -> configs.QkvImageEncoderConfig:
    return made("ImageEncoder", "image_encoder", kind, IMAGE, fields)


def decoder(kind: str = "gpt2", **fields: Any) -> configs.QkvDecoderConfig:
    return made("Decoder", "decoder", kind, TEXT, IDS, fields)


def encoder_decoder(kind: str = "transformer", **fields: Any) -> configs.QkvEncoderDecoderConfig:
    return made("EncoderDecoder", "encoder_decoder", kind, TEXT, IDS, STARTED, fields)


def encoder_alone(kind: str = "transformer", **fields: Any) -> configs.QkvEncoderDecoderConfig:
    """The config that the encoder alone of such a model has."""
    return encoder_decoder(kind, is_encoder_decoder=False, **fields)


def recurrent(kind: str = "rnnsearch", **fields: Any) -> configs.QkvRecurrentConfig:
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 32, "encoder_hidden_size": 16, "initializer_range": 0.1}
    return made("Recurrent", "recurrent", kind, sizes, IDS, STARTED, fields)


def dual_encoder(kind: str = "clip", **fields: Any) -> configs.QkvDualEncoderConfig:
    """A text encoder and an image encoder, of other widths where the kind says so."""
    own = KINDS["dual_encoder"][kind]
    words = {name: value for name, value in {**TEXT, **IDS}.items() if name not in SIZES}
    image = {name: value for name, value in IMAGE.items() if name not in (*SIZES, "num_labels")}
    halves = {"text_config": words, "vision_config": image}
    parts = {name: {**half, **own.get(name, {})} for name, half in halves.items()}
    return made("DualEncoder", "dual_encoder", kind, {**SIZES, "projection_dim": 20}, {**parts, **fields})


def text_encoder(kind: str = "clip", **fields: Any) -> configs.QkvTextEncoderConfig:
    """The text half alone."""
    return configs.QkvTextEncoderConfig(**{**TEXT, **IDS, **DROPOUT, **fields})


def audio_encoder(kind: str = "speech", **fields: Any) -> configs.QkvAudioEncoderConfig:
    return made("AudioEncoder", "audio_encoder", kind, TEXT, IDS, fields)


def speech_encoder_decoder(kind: str = "speech", **fields: Any) -> configs.QkvSpeechEncoderDecoderConfig:
    return made("SpeechEncoderDecoder", "speech_encoder_decoder", kind, TEXT, IDS, STARTED, fields)


def detector(kind: str = "detr", **fields: Any) -> configs.QkvDetectionConfig:
    sizes = {**SIZES, "num_queries": QUERIES, "num_labels": LABELS, "initializer_range": 0.1}
    return made("Detection", "detector", kind, sizes, fields)


def pair(kind: str = "evoformer", **fields: Any) -> configs.QkvPairConfig:
    sizes = {"pair_hidden_size": 16, "num_pair_attention_heads": 2, "pair_intermediate_size": 20, "num_labels": LABELS}
    bins = {"relative_position_bins": 3, "num_distogram_bins": BINS, "initializer_range": 0.1}
    return made("Pair", "pair", kind, SIZES, sizes, bins, {"vocab_size": VOCABULARY, **IDS}, fields)


def folding(kind: str = "recycled", **fields: Any) -> configs.QkvFoldingConfig:
    sizes = {"pair_hidden_size": 16, "num_pair_attention_heads": 2, "pair_intermediate_size": 20}
    bins = {"relative_position_bins": 3, "num_distogram_bins": BINS, "initializer_range": 0.1}
    ids = {"language_model_ids": [i % 40 for i in range(VOCABULARY)]} if kind == "esmfold" else {}
    return made("Folding", "folding", kind, SIZES, sizes, bins, {"vocab_size": VOCABULARY, **IDS, **ids}, fields)


def text(*, batch: int = BATCH, length: int = LENGTH, seed: int = 1) -> dict[str, Tensor]:
    """Rows of random tokens, none of them special; all but the first row padded on the right, more and more."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, VOCABULARY, (batch, length), generator=generator)
    mask = (torch.arange(length) < (length - 2 * torch.arange(batch)[:, None]).clamp(min=2)).long()
    return {"input_ids": ids.where(mask.bool(), torch.tensor(PAD)), "attention_mask": mask}


def images(*, batch: int = BATCH, size: tuple[int, int] = (12, 16)) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(1))}


def padded_images() -> dict[str, Tensor]:
    """Images of as many places as a source has tokens, the second with two less than the first."""
    pixels = images(size=(8, 8 * SOURCE))["pixel_values"]
    mask = torch.ones(BATCH, *pixels.shape[2:], dtype=torch.long)
    mask[1, :, -16:] = 0
    return {"pixel_values": pixels * mask[:, None], "pixel_mask": mask}


def objects() -> dict[str, Any]:
    """Two objects in the first image, one in the second."""
    first = {"class_labels": torch.tensor([2, 0]), "boxes": torch.tensor([[0.3, 0.4, 0.2, 0.5], [0.7, 0.5, 0.4, 0.6]])}
    second = {"class_labels": torch.tensor([1]), "boxes": torch.tensor([[0.5, 0.5, 0.9, 0.8]])}
    return {**padded_images(), "labels": [first, second]}


def audio(tokens: int = SOURCE, *, plain: bool = False, batch: int = BATCH) -> dict[str, Tensor]:
    """Spectrograms that convolutions make this many tokens of, of which each row has two less than the one before."""
    stride = 2 if plain else 4
    frames = stride * (tokens - 1) + 1
    features = torch.randn(batch, frames, 6, generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(frames) < (frames - 2 * stride * torch.arange(batch)[:, None]).clamp(min=1)).long()
    features = features * mask[..., None]
    return {"input_features": features.transpose(1, 2) if plain else features, "attention_mask": mask}


def audio_with_labels(*, plain: bool = False) -> dict[str, Tensor]:
    """Sound and the words in it, without what is said when."""
    return {**audio(LENGTH, plain=plain), "labels": torch.tensor([[7, 7, 9, 30], [5, 60, -100, -100]])}


def transcriptions(*, plain: bool = False) -> dict[str, Tensor]:
    return {**audio(plain=plain), "labels": translations()["labels"]}


def audio_with_targets() -> dict[str, Tensor]:
    return {**audio(), **{name: value for name, value in pairs().items() if name.startswith("decoder")}}


def real_labels(ids: dict[str, Tensor], labels: Tensor | None = None) -> Tensor:
    """Labels of real tokens; those of padding count nowhere."""
    labels = ids["input_ids"] if labels is None else labels
    return labels.where(ids["attention_mask"].bool(), torch.tensor(-100))


def segments() -> dict[str, Tensor]:
    return {**text(), "token_type_ids": (torch.arange(LENGTH) > 4).long().expand(BATCH, -1)}


def masked_labels(seed: int = 2) -> Tensor:
    """A label for about half of the real tokens."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, VOCABULARY, (BATCH, LENGTH), generator=generator)
    due = (torch.rand(BATCH, LENGTH, generator=generator) < 0.5) & text()["attention_mask"].bool()
    due[:, 0] = True
    return labels.where(due, torch.tensor(-100))


def replaced_tokens() -> dict[str, Tensor]:
    return {**segments(), "labels": (masked_labels() != -100).long()}


def masked_language() -> dict[str, Tensor]:
    return {**segments(), "labels": masked_labels()}


def pretraining() -> dict[str, Tensor]:
    return {**masked_language(), "next_sentence_label": torch.tensor([0, 1])}


def classes(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {**inputs, "labels": torch.tensor([2, 0])}


def token_classes() -> dict[str, Tensor]:
    labels = torch.arange(BATCH * LENGTH).view(BATCH, LENGTH) % LABELS
    return {**text(), "labels": real_labels(text(), labels)}


def alignment() -> dict[str, Tensor]:
    """Chains with further sequences that are aligned with them, of which the second chain has one less."""
    inputs = text()
    others = torch.randint(4, VOCABULARY, (BATCH, SEQUENCES, LENGTH), generator=torch.Generator().manual_seed(4))
    others = others.where(inputs["attention_mask"].bool()[:, None], torch.tensor(PAD))
    mask = (torch.arange(SEQUENCES) < SEQUENCES - torch.arange(BATCH)[:, None]).long()
    return {**inputs, "msa_ids": others, "msa_attention_mask": mask}


def masked_alignment() -> dict[str, Tensor]:
    """The same with a label for every second residue of the further sequences, too."""
    inputs = alignment()
    due = (inputs["msa_ids"] != PAD) & inputs["msa_attention_mask"].bool()[..., None] & (torch.arange(LENGTH) % 2 == 0)
    further = inputs["msa_ids"].where(due, torch.tensor(-100))
    return {**inputs, "labels": torch.cat((masked_labels()[:, None], further), dim=1)}


def pair_labels(inputs: dict[str, Tensor], classes: int) -> dict[str, Tensor]:
    """A class for each pair of real residues, the same in both orders."""
    places = torch.arange(LENGTH)
    labels = ((places[:, None] + places) // 2 % classes).expand(BATCH, -1, -1)
    real = inputs["attention_mask"].bool()
    return {**inputs, "labels": labels.where(real[:, :, None] & real[:, None], torch.tensor(-100))}


def contacts() -> dict[str, Tensor]:
    return pair_labels(text(), 2)


def distances() -> dict[str, Tensor]:
    return pair_labels(text(), BINS)


def known_distances() -> dict[str, Tensor]:
    """Chains of which some distances are known; the number of the others is 0."""
    return {**text(), "distance_bins": pair_labels(text(), 4)["labels"].clamp(min=0)}


def residue_labels() -> dict[str, Tensor]:
    return {**text(), "labels": masked_labels()}


def structures() -> dict[str, Tensor]:
    """Chains of amino acids with positions of their backbone, of which one atom is unknown."""
    inputs = text()
    real = inputs["attention_mask"].bool()
    positions = 4 * torch.randn(BATCH, LENGTH, 4, 3, generator=torch.Generator().manual_seed(5))
    positions[0, 1, 3] = -100
    ids = (inputs["input_ids"] % 20).where(real, inputs["input_ids"])
    return {**inputs, "input_ids": ids, "labels": positions.where(real[:, :, None, None], torch.tensor(-100.0))}


SPANS = {"start_positions": torch.tensor([1, 0]), "end_positions": torch.tensor([4, 2])}


def spans() -> dict[str, Tensor]:
    return {**text(), **SPANS}


def inner_contacts() -> dict[str, Tensor]:
    """Labels of pairs of the tokens between the first and the last of each row, none of neighbours and of padding."""
    inputs, places = text(), torch.arange(LENGTH - 2)
    real = places < inputs["attention_mask"].sum(-1, keepdim=True) - 2
    apart = (places - places[:, None]).abs()
    due = real[:, None] & real[..., None] & (apart > 1)
    return {**inputs, "labels": (apart % 3 == 0).long().where(due, torch.tensor(-100))}


def choices() -> dict[str, Tensor]:
    inputs = text(batch=BATCH * 3)
    return {**{name: value.unflatten(0, (BATCH, 3)) for name, value in inputs.items()}, "labels": torch.tensor([1, 2])}


def masked_patches() -> dict[str, Tensor]:
    return {**images(), "bool_masked_pos": torch.arange(24).view(BATCH, 12) % 3 == 0}


def causal_labels() -> dict[str, Tensor]:
    return {**text(), "labels": real_labels(text())}


def pairs() -> dict[str, Tensor]:
    """A padded source and a longer padded target."""
    return {**text(length=SOURCE), **{f"decoder_{name}": value for name, value in text(seed=3).items()}}


def translations() -> dict[str, Tensor]:
    return {**text(length=SOURCE), "labels": real_labels(text(seed=3))}


def ended(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Texts whose last real token is the end."""
    last = inputs["attention_mask"].sum(-1, keepdim=True) - 1
    return {**inputs, "input_ids": inputs["input_ids"].scatter(1, last, END)}


def same_source_and_target() -> dict[str, Tensor]:
    """A text with its end, for the encoder as it is and for the decoder shifted right."""
    source = ended(text(length=SOURCE))
    ids = source["input_ids"]
    return {**source, "decoder_input_ids": torch.cat((ids.new_full((BATCH, 1), START), ids[:, :-1]), 1)}


def same_source_and_target_spans() -> dict[str, Tensor]:
    return {**same_source_and_target(), **SPANS}


def sentences() -> dict[str, Tensor]:
    return ended(text())


def captions() -> dict[str, Tensor]:
    return {**sentences(), **images(), "return_loss": torch.tensor(True)}


def captions_without_mask() -> dict[str, Tensor]:
    """The same for a model that reads padding as it stands, as another token."""
    return {name: value for name, value in captions().items() if name != "attention_mask"}


def captions_by_highest_id() -> dict[str, Tensor]:
    """The same where the last real token has the highest id."""
    inputs = captions()
    ids = inputs["input_ids"]
    return {**inputs, "input_ids": ids.clamp(max=VOCABULARY - 2).where(ids != END, VOCABULARY - 1)}


@dataclass(frozen=True)
class Case:
    """A head of a family at one configuration, the inputs it takes, and the Auto class that finds it."""

    name: str
    model_class: type[PreTrainedModel]
    config: Callable[..., PreTrainedConfig]
    inputs: Callable[[], dict[str, Tensor]]
    auto_class: str

    def build(self, **fields: Any) -> PreTrainedModel:
        """A model in evaluation mode whose every parameter, biases and norms too, is its own."""
        torch.manual_seed(0)
        return jitter(self.model_class(self.config(**fields))).eval()


MAKERS = {type(make()): make for make in (encoder, image_encoder, decoder, encoder_decoder)}


def precise(model_class: Any, *kind: str, **fields: Any) -> PreTrainedModel:
    """A jittered model of a kind of config, in double precision and evaluation mode."""
    torch.manual_seed(0)
    return jitter(model_class(MAKERS[model_class.config_class](*kind, **fields))).double().eval()


def jitter(model: PreTrainedModel) -> PreTrainedModel:
    """Move every parameter a little: a bias of zero or a gain of one would hide where it is dropped."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


# Auto classes of models without a head, which name no task.
WITHOUT_TASK = ("AutoModel", "AutoModelForTextEncoding")
# Heads that share an Auto class with another: ELECTRA's second one for pretraining, and one that no Auto class is for.
SHARED_AUTO_CLASSES = {
    "ForReplacedTokenDetection": "AutoModelForPreTraining",
    "ForContactPrediction": "AutoModel",
    "ForDistancePrediction": "AutoModel",
}


def cases(family: str, config: Any, *rows: tuple[str, str, Callable[[], Any]]) -> list[Case]:
    """Return the cases of a family: rows of a head's name, the kind of its config, and its inputs."""
    auto_map, made = config().auto_map, []
    for head, kind, inputs in rows:
        model_class = getattr(qkv, f"Qkv{family}{head}")
        own = [auto for auto, name in auto_map.items() if name.endswith(f".{model_class.__name__}")]
        auto_class = min(own, key=WITHOUT_TASK.__contains__, default=SHARED_AUTO_CLASSES.get(head, "none"))
        made.append(Case(f"{family}{head}-{kind}", model_class, partial(config, kind), inputs, auto_class))
    return made


def text_classes() -> dict[str, Tensor]:
    return classes(text())


def image_classes() -> dict[str, Tensor]:
    return classes(images())


HEADS = [
    *cases(
        "Encoder",
        encoder,
        ("Model", "bert", segments),
        ("ForMaskedLM", "bert", masked_language),
        ("ForPreTraining", "bert", pretraining),
        ("ForSequenceClassification", "bert", text_classes),
        ("ForTokenClassification", "local", token_classes),
        ("ForQuestionAnswering", "bert", spans),
        ("ForMultipleChoice", "bert", choices),
        ("ForContactPrediction", "pairs", inner_contacts),
    ),
    *cases(
        "ImageEncoder",
        image_encoder,
        ("ForImageClassification", "vit", image_classes),
        ("ForMaskedImageModeling", "vit", masked_patches),
    ),
    *cases(
        "Decoder",
        decoder,
        ("Model", "gpt2", text),
        ("ForCausalLM", "gpt2", causal_labels),
        ("ForSequenceClassification", "gpt2", text_classes),
        ("ForTokenClassification", "llama", token_classes),
        ("ForQuestionAnswering", "mistral", spans),
    ),
    *cases(
        "EncoderDecoder",
        encoder_decoder,
        ("Model", "transformer", pairs),
        ("ForConditionalGeneration", "transformer", translations),
        ("ForSequenceClassification", "bart", lambda: classes(same_source_and_target())),
        ("ForQuestionAnswering", "marian", same_source_and_target_spans),
    ),
    *cases("EncoderDecoder", encoder_alone, ("EncoderModel", "transformer", text)),
    *cases(
        "Recurrent", recurrent, ("Model", "rnnsearch", pairs), ("ForConditionalGeneration", "rnnsearch", translations)
    ),
    *cases("TextEncoder", text_encoder, ("Model", "clip", sentences)),
    *cases("DualEncoder", dual_encoder, ("Model", "clip", captions)),
    *cases("Detection", detector, ("Model", "detr", padded_images), ("ForObjectDetection", "detr", objects)),
    *cases("AudioEncoder", audio_encoder, ("ForCTC", "speech", audio_with_labels)),
    *cases("SpeechEncoderDecoder", speech_encoder_decoder, ("ForSpeechSeq2Seq", "speech", transcriptions)),
    *cases(
        "Pair",
        pair,
        ("Model", "evoformer", alignment),
        ("ForContactPrediction", "esmfold", contacts),
        ("ForDistancePrediction", "evoformer", lambda: pair_labels(alignment(), BINS)),
        ("ForMaskedLM", "evoformer", masked_alignment),
        ("ForTokenClassification", "esmfold", token_classes),
    ),
    *cases("Folding", folding, ("Model", "recycled", structures)),
]
# The same heads at the configurations that change more than numbers: other parameters, poolings, ties, caches.
VARIANTS = [
    *cases(
        "Encoder",
        encoder,
        ("ForMaskedLM", "relative", masked_language),
        ("ForSequenceClassification", "relative", text_classes),
        ("ForMaskedLM", "electra", masked_language),
        ("ForReplacedTokenDetection", "electra", replaced_tokens),
        ("ForTokenClassification", "modernbert", token_classes),
        ("ForSequenceClassification", "modernbert", text_classes),
    ),
    *cases(
        "ImageEncoder",
        image_encoder,
        ("Model", "vit", images),
        *(("ForImageClassification", kind, image_classes) for kind in ("deit", "mean", "dinov2", "dinov3")),
    ),
    *cases("Decoder", decoder, *(("ForCausalLM", kind, causal_labels) for kind in list(KINDS["decoder"])[1:])),
    *cases(
        "EncoderDecoder",
        encoder_decoder,
        *(("ForConditionalGeneration", kind, translations) for kind in list(KINDS["encoder_decoder"])[1:]),
    ),
    *cases("EncoderDecoder", encoder_alone, *(("EncoderModel", kind, text) for kind in ("t5", "marian"))),
    *cases(
        "Recurrent",
        recurrent,
        *(("ForConditionalGeneration", kind, translations) for kind in list(KINDS["recurrent"])[1:]),
    ),
    *cases(
        "DualEncoder",
        dual_encoder,
        ("Model", "uneven", captions_by_highest_id),
        ("Model", "siglip", captions_without_mask),
    ),
    *cases("Detection", detector, ("ForObjectDetection", "patches", objects)),
    *cases(
        "AudioEncoder",
        audio_encoder,
        ("Model", "speech", lambda: audio(LENGTH)),
        ("ForCTC", "plain", lambda: audio_with_labels(plain=True)),
    ),
    *cases(
        "SpeechEncoderDecoder",
        speech_encoder_decoder,
        ("Model", "speech", audio_with_targets),
        ("ForSpeechSeq2Seq", "plain", lambda: transcriptions(plain=True)),
    ),
    *cases(
        "Pair",
        pair,
        ("Model", "recycled", known_distances),
        ("ForDistancePrediction", "recycled", distances),
        ("ForMaskedLM", "recycled", residue_labels),
        ("ForContactPrediction", "plain", contacts),
    ),
    *cases("Folding", folding, ("Model", "esmfold", structures)),
]
CASES = HEADS + VARIANTS
# Those that have a loss.
LOSSES = [case for case in CASES if case.auto_class not in WITHOUT_TASK or "labels" in case.inputs()]
