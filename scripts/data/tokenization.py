"""Train tokenizers on the spot, the same ones every time, load trained ones, tokenize texts, and count truncated ones.

Source: byte-level BPE: Radford et al. 2019, §2.2, Language Models are Unsupervised Multitask Learners. WordPiece:
    Schuster & Nakajima 2012, https://doi.org/10.1109/ICASSP.2012.6289079
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from qkv.configuration.configuration_folding import RESIDUES
from qkv.scripts.common.words import did_you_mean
from qkv.scripts.data.pretrained import pretrained_folder
from qkv.scripts.recipes.schema import Recipe

PAD, END, START, UNKNOWN, MASK = SPECIAL = ("<pad>", "</s>", "<s>", "<unk>", "<mask>")
CONTROL = f"^<(?=({'|'.join(word[1:] for word in SPECIAL)})$)"  # of a word that is spelled as one of them
# The templates of encoders, and of encoder-decoders.
ENCODER_TEMPLATE, SEQ2SEQ_TEMPLATE = f"{START} $A {END}", f"$A {END}"
PAIR_TEMPLATE = f"{ENCODER_TEMPLATE} $B {END}"  # of encoders, for two texts
# Kinds of special tokens that stand in the texts which a pipeline is given: a mask, the end of a prompt.
TYPED = {"mask", "bos"}
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
LONG_WORD = re.compile(r"(\w{1000}|[^\w\s]{1000})")
PART = 10_000  # texts that are tokenized at a time
WARNED, FITTING = 0.05, 0.95  # the share of truncated texts that is a warning, and of training texts that should fit


def tokenizer_for(
    recipe: Recipe, texts: Sequence[str], template: str = "$A", needs: Sequence[str] = (), pair: str = ""
) -> PreTrainedTokenizerFast:
    """Return the recipe's tokenizer, trained on these texts, or the tokenizer of the model in `init`.

    `template` says which special tokens stand around a text, `pair` around two. ValueError for a folder without a
    tokenizer, and for one without the kinds of special tokens in `needs`, such as "mask".
    """
    length, init = recipe.text.length, recipe.model.init
    where = recipe.text.tokenizer if init is None else str(pretrained_folder(init))
    if init is not None and not any(Path(where).glob("token*")) and not any(Path(where).glob("vocab*")):
        raise ValueError(f"init={init!r} holds no tokenizer; give a run or a model folder with one")
    if init is not None or where not in MAKERS:
        return load_tokenizer(where, length, needs)
    tokenizer = MAKERS[recipe.text.tokenizer](texts, recipe.text.vocab_size)
    tokenizer.add_special_tokens(list(SPECIAL))
    numbers = [(word, tokenizer.token_to_id(word)) for word in (START, END)]
    tokenizer.post_processor = TemplateProcessing(template, pair or f"{template} $B", special_tokens=numbers)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=length,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        split_special_tokens=not set(needs) & TYPED,
        pad_token=PAD, eos_token=END, sep_token=END, bos_token=START, cls_token=START, unk_token=UNKNOWN,
        mask_token=MASK,
    )  # fmt: skip


def load_tokenizer(where: str, length: int, needs: Sequence[str] = ()) -> Any:
    """Load the tokenizer of a folder or of the Hub; ValueError where there is none, or it lacks a special token."""
    hint = did_you_mean(where, list(MAKERS), "tokenizers that are trained here")
    if "/" not in where and not Path(where).is_dir():
        # Do not ask the Hub for it, which retries without a network.
        raise ValueError(f"text.tokenizer={where!r} is neither trained here nor a folder or author/name; {hint}")
    try:
        loaded: Any = AutoTokenizer.from_pretrained(where)
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"text.tokenizer={where!r} cannot be loaded ({reason}); {hint}") from None
    loaded.model_max_length = length
    if is_trained_here(loaded):  # for a model with other needs
        loaded.split_special_tokens = not set(needs) & TYPED
    if loaded.pad_token_id is None:
        # Padding is masked, so any token will do.
        loaded.pad_token = loaded.eos_token
    for kind in needs:
        if getattr(loaded, f"{kind}_token_id") is None:
            missing = f"the tokenizer of {loaded.name_or_path!r} has no {kind} token"
            raise ValueError(f"{missing}, which this architecture learns with; take one of {', '.join(MAKERS)}")
    return loaded


def control_words(tokenizer: Any, words: Sequence[str], init: str | None, mend: str, **options: Any) -> list[int]:
    """Return the numbers of control words, which new tokenizers get; ValueError where that of `init` lacks one."""
    if init is None:  # not special, so that they are read where a person types them, and written where the model does
        tokenizer.add_tokens([AddedToken(word, normalized=False, special=False, **options) for word in words])
    known = tokenizer.get_vocab()
    if missing := [word for word in words if word not in known]:
        raise ValueError(f"init={init!r} has no {missing[-1]} in its tokenizer; {mend}")
    return [known[word] for word in words]


def divided(texts: Sequence[str]) -> Iterator[str]:
    """Yield texts with a space within words longer than any is, whose merges would take the square of their length."""
    return (LONG_WORD.sub(r"\1 ", text) for text in texts)


def byte_level(model: models.BPE, *, use_regex: bool = True) -> Tokenizer:
    """Make a tokenizer over bytes, which encodes any text without loss."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def byte_level_bpe(texts: Sequence[str], size: int) -> Tokenizer:
    """Train byte-level BPE."""
    tokenizer = byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(SPECIAL), initial_alphabet=ALPHABET, show_progress=False
    )
    tokenizer.train_from_iterator(divided(texts), trainer)
    return tokenizer


def single_bytes(texts: Sequence[str], size: int) -> Tokenizer:
    """Make a token of each of the 256 bytes."""
    return byte_level(models.BPE(vocab=numbered(ALPHABET), merges=[]), use_regex=False)


def numbered(words: Iterable[str]) -> dict[str, int]:
    """Give numbers to the special tokens, and then to the words."""
    return {word: index for index, word in enumerate((*SPECIAL, *words))}


def word_level(units: set[str], size: int, kind: str) -> Tokenizer:
    """Make a token of each of these units; ValueError where there are too many, or one is a special token."""
    if taken := sorted(units & set(SPECIAL)):
        raise ValueError(f"the texts have {taken[0]!r}, a control token of text.tokenizer={kind}; take bpe")
    vocabulary = numbered(sorted(units))
    if len(vocabulary) > size:
        raise ValueError(f"text.vocab_size={size} is less than the {len(vocabulary)} that {len(units)} {kind} need")
    return Tokenizer(models.WordLevel(vocab=vocabulary, unk_token=UNKNOWN))


def characters(texts: Sequence[str], size: int) -> Tokenizer:
    """Make a token of each character that occurs in the texts."""
    tokenizer = word_level(set().union(*texts), size, "characters")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def whole_words(texts: Sequence[str], size: int) -> Tokenizer:
    """Make a token of each word between spaces that occurs in the texts."""
    tokenizer = word_level({word for text in texts for word in text.split()}, size, "words")
    apart = pre_tokenizers.Split(Regex(CONTROL), "isolated")  # a word <mask> that a person writes is unknown
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), apart])
    return tokenizer


def wordpiece(texts: Sequence[str], size: int) -> Tokenizer:
    """Train WordPiece on lower-case words; pieces within a word begin with ##."""
    normalizer, splitter = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    trained = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    trained.normalizer, trained.pre_tokenizer = normalizer, splitter
    letters = sorted(set().union(*(normalizer.normalize_str(text) for text in texts)) - {" "})
    # Its trainer numbers continuations in an order that differs from process to process.
    first = [*SPECIAL, *(f"##{letter}" for letter in letters)]
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=first, show_progress=False)
    trained.train_from_iterator(divided(texts), trainer)
    tokenizer = Tokenizer(models.WordPiece(vocab=trained.get_vocab(), unk_token=UNKNOWN))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def residues(texts: Sequence[str], size: int) -> Tokenizer:
    """Make a token of each amino acid, numbered as models that fold have them; other letters are X."""
    letters = {letter: number for number, letter in enumerate(RESIDUES)}
    tokenizer = Tokenizer(models.WordLevel(vocab=letters, unk_token=RESIDUES[-1]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


MAKERS: dict[str, Callable[[Sequence[str], int], Tokenizer]] = {
    "bpe": byte_level_bpe, "wordpiece": wordpiece, "characters": characters, "words": whole_words,
    "bytes": single_bytes, "residues": residues,
}  # fmt: skip


def is_trained_here(tokenizer: Any) -> bool:
    """Tell whether a tokenizer is of ours, by the numbers of its special tokens; those of CTC have no mask."""
    first, *others = tokenizer.convert_tokens_to_ids([*SPECIAL[:4]])
    return first in (0, len(RESIDUES)) and others == [first + 1, first + 2, first + 3]


def tokenize(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], **options: Any) -> list[np.ndarray]:
    """Return the ids of each text, with the special tokens of the template."""
    if is_trained_here(tokenizer):
        # A text of HTML has <s> and </s>, too. Those of other tokenizers are written into texts on purpose.
        options.setdefault("split_special_tokens", True)
    rows: list[np.ndarray] = []
    for start in range(0, len(texts), PART):  # the tokenizer keeps a kilobyte of each text until all are done
        part = list(texts[start : start + PART])
        made = tokenizer(part, return_attention_mask=False, verbose=False, **options)["input_ids"]
        rows += [np.asarray(row, dtype=np.int64) for row in made]
    return rows


def byte_counts(tokenizer: PreTrainedTokenizerFast) -> np.ndarray | None:
    """Return how many bytes of text each token stands for, by its id; None unless the tokenizer is byte-level."""
    if not isinstance(tokenizer.backend_tokenizer.pre_tokenizer, pre_tokenizers.ByteLevel):
        return None
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    special = set(tokenizer.all_special_tokens)
    for word, index in tokenizer.get_vocab().items():
        counts[index] = 0 if word in special else len(word)
    return counts


def config_fields(tokenizer: PreTrainedTokenizerBase, **others: Any) -> dict[str, Any]:
    """Return the fields of a model's config that follow from its tokenizer, and `others`."""
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    return {"vocab_size": len(tokenizer), **{name: getattr(tokenizer, name) for name in names}, **others}


def truncate(tokenizer: Any, texts: Sequence[str], length: int) -> tuple[list[np.ndarray], list[int]]:
    """Return the tokens of each text, of which at most `length` are kept, and how many it had."""
    rows = tokenize(tokenizer, texts)
    lengths = [len(row) for row in rows]
    long = [row for row, own in enumerate(lengths) if own > length]
    # By the tokenizer, which keeps the special tokens around a text.
    kept = tokenize(tokenizer, [texts[row] for row in long], truncation=True, max_length=length)
    for row, tokens in zip(long, kept, strict=True):
        rows[row] = tokens
    return rows, lengths


def count_truncated(lengths: Mapping[str, Sequence[int]], length: int, field: str = "text.length") -> dict[str, Any]:
    """Count the texts of each split that were truncated to the length that a `field` sets; say which would fit most."""
    cut = {split: sum(one > length for one in own) for split, own in lengths.items()}
    shares = {split: count / max(len(lengths[split]), 1) for split, count in cut.items()}
    enough = int(np.quantile(lengths["train"], FITTING, method="higher")) if lengths.get("train") else length
    return {"field": field, "length": length, "texts": cut, "share": shares, "enough": max(enough, length)}


def is_much(counts: Mapping[str, Any]) -> bool:
    """Tell whether so many texts of a split were truncated that it has to be said first."""
    return bool(max(counts["share"].values(), default=0) > WARNED)


def truncated_sentence(counts: Mapping[str, Any]) -> str:
    """Describe how many texts were truncated, and the value that would leave most whole; empty for none."""
    shares, field = counts.get("share", {}), counts.get("field")
    some = [f"{count:,} of the {split} split ({100 * shares[split]:.2f} %)"
            for split, count in counts.get("texts", {}).items() if count]  # fmt: skip
    if not some:
        return ""
    longer = f"; {field}={counts['enough']} would leave {100 * FITTING:.0f} % of the training texts whole"
    told = f"Texts were truncated to {f'{field}=' * bool(field)}{counts['length']} tokens: {', '.join(some)}"
    return told + (longer if field and counts["enough"] > counts["length"] else "") + "."
