"""How do texts become tokens? A tokenizer trained on the spot, the same one every time, as transformers loads it.

Source: byte-level BPE: Radford et al. 2019, §2.2, Language Models are Unsupervised Multitask Learners. WordPiece:
    Schuster & Nakajima 2012, https://doi.org/10.1109/ICASSP.2012.6289079
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from qkv.scripts.recipes.schema import Recipe, meant

PAD, END, START, UNKNOWN, MASK = SPECIAL = ("<pad>", "</s>", "<s>", "<unk>", "<mask>")
# How encoders are given a text, and how encoder-decoders.
AROUND, AFTER = f"{START} $A {END}", f"$A {END}"
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


def tokenizer_for(
    recipe: Recipe, texts: Sequence[str], template: str = "$A", needs: Sequence[str] = ()
) -> PreTrainedTokenizerFast:
    """The recipe's tokenizer, trained on these texts, or that of the folder in `init`.

    `template` says which special tokens stand around a text, and `needs` are the kinds of special tokens that there
    have to be, such as "mask". ValueError for a folder without a tokenizer, and for a tokenizer without these.
    """
    if recipe.init is not None:
        return having(needs, saved(Path(recipe.init), recipe.text.length))
    if recipe.text.tokenizer not in MAKERS:
        return having(needs, loaded(recipe.text.tokenizer, recipe.text.length))
    tokenizer = MAKERS[recipe.text.tokenizer](texts, recipe.text.vocab_size)
    numbers = [(word, tokenizer.token_to_id(word)) for word in (START, END)]
    tokenizer.post_processor = TemplateProcessing(single=template, pair=f"{template} $B", special_tokens=numbers)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=recipe.text.length,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        pad_token=PAD, eos_token=END, sep_token=END, bos_token=START, cls_token=START, unk_token=UNKNOWN,
        mask_token=MASK,
    )  # fmt: skip


def having(needs: Sequence[str], tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The tokenizer; ValueError for one that lacks a special token."""
    for kind in needs:
        if getattr(tokenizer, f"{kind}_token_id") is None:
            raise ValueError(
                f"the tokenizer of {tokenizer.name_or_path!r} has no {kind} token, which this architecture learns "
                f"with; take another, or one that is trained here: {', '.join(MAKERS)}"
            )
    return tokenizer


def saved(folder: Path, length: int) -> PreTrainedTokenizerFast:
    """The tokenizer of a model folder; ValueError where there is none."""
    if not (folder / "tokenizer.json").is_file():
        raise ValueError(f"init={str(folder)!r} holds no tokenizer.json; give the model folder of a run, runs/…/model")
    return loaded(str(folder), length)


def loaded(where: str, length: int) -> PreTrainedTokenizerFast:
    """The tokenizer of a folder or of the Hub; ValueError where there is none."""
    hint = meant(where, list(MAKERS), "tokenizers that are trained here")
    if "/" not in where and not Path(where).is_dir():
        # The Hub would be asked for it, again and again where there is no network.
        raise ValueError(f"text.tokenizer={where!r} is neither made here nor a folder or author/name; {hint}")
    try:
        found: Any = AutoTokenizer.from_pretrained(where)
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"text.tokenizer={where!r} cannot be had ({reason}); {hint}") from None
    found.model_max_length = length
    if found.pad_token_id is None:
        # What fills rows up is never looked at, so any token will do.
        found.pad_token = found.eos_token
    tokenizer: PreTrainedTokenizerFast = found
    return tokenizer


def byte_pairs(texts: Sequence[str], size: int) -> Tokenizer:
    """Pairs of bytes that stand together often, within words: any text can be spelt, and is spelt without loss."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(SPECIAL), initial_alphabet=ALPHABET, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def single_bytes(texts: Sequence[str], size: int) -> Tokenizer:
    """The 256 bytes."""
    vocabulary = {word: index for index, word in enumerate((*SPECIAL, *ALPHABET))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def characters(texts: Sequence[str], size: int) -> Tokenizer:
    """The characters that occur in the texts, of which there are few enough."""
    found = sorted(set().union(*texts))
    vocabulary = {word: index for index, word in enumerate((*SPECIAL, *found))}
    if len(vocabulary) > size:
        raise ValueError(f"text.vocab_size={size} is less than the {len(vocabulary)} that {len(found)} characters need")
    tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def word_pieces(texts: Sequence[str], size: int) -> Tokenizer:
    """Lower-case words cut into pieces, of which all but the first begin with ##."""
    normalizer, splitter = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    apprentice = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    apprentice.normalizer, apprentice.pre_tokenizer = normalizer, splitter
    letters = sorted(set().union(*(normalizer.normalize_str(text) for text in texts)) - {" "})
    # Its trainer numbers continuations as it meets them, and that in an order that differs from process to process.
    first = [*SPECIAL, *(f"##{letter}" for letter in letters)]
    apprentice.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=size, special_tokens=first, show_progress=False)
    )
    tokenizer = Tokenizer(models.WordPiece(vocab=apprentice.get_vocab(), unk_token=UNKNOWN))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def whole_words(texts: Sequence[str], size: int) -> Tokenizer:
    """The words that occur in the texts, of which there are few enough; they stand between spaces."""
    found = sorted({word for text in texts for word in text.split()})
    vocabulary = {word: index for index, word in enumerate((*SPECIAL, *found))}
    if len(vocabulary) > size:
        raise ValueError(f"text.vocab_size={size} is less than the {len(vocabulary)} that {len(found)} words need")
    tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


MAKERS: dict[str, Callable[[Sequence[str], int], Tokenizer]] = {
    "bpe": byte_pairs,
    "wordpiece": word_pieces,
    "characters": characters,
    "words": whole_words,
    "bytes": single_bytes,
}


def ids(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], **options: Any) -> list[np.ndarray]:
    """The tokens of each text, with those of the template around them."""
    if not texts:  # of a stream, where all records that were read together were bad
        return []
    found = tokenizer(list(texts), return_attention_mask=False, verbose=False, **options)["input_ids"]
    return [np.asarray(row, dtype=np.int64) for row in found]


def byte_counts(tokenizer: PreTrainedTokenizerFast) -> np.ndarray | None:
    """How many bytes of text each token spells, by its id; None where a tokenizer does not spell by bytes."""
    if not isinstance(tokenizer.backend_tokenizer.pre_tokenizer, pre_tokenizers.ByteLevel):
        return None
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    special = set(tokenizer.all_special_tokens)
    for word, index in tokenizer.get_vocab().items():
        counts[index] = 0 if word in special else len(word)
    return counts


def fields(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """What a model's config says about its tokens."""
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    return {"vocab_size": len(tokenizer), **{name: getattr(tokenizer, name) for name in names}}
