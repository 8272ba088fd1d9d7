"""Push models by transformers' own methods: the author's side of `test_author.py`."""

import tempfile
from typing import Any

import torch
from huggingface_hub import HfApi
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    pipeline,
)

import checkout  # noqa: F401
import qkv
from clean_client_jobs import SENTENCE, logits
from qkv.scripts.publishing.hub.callback import CodeCallback

api = HfApi()
WORDS = ["[PAD]", "[UNK]", "[MASK]", "the", "cat", "sat", "on", "mat"]


def model(seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": len(WORDS)}
    return qkv.QkvEncoderForMaskedLM(qkv.QkvEncoderConfig(position="rope", **shape))


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
    return PreTrainedTokenizerFast(tokenizer_object=words, **special)


def files(name: str) -> list[str]:
    """Return the files of a repository besides code."""
    return sorted(path for path in api.list_repo_files(name) if not path.endswith((".py", ".gitattributes")))


def pushed() -> Any:
    """A model and its tokenizer, and what the author gets back."""
    name, author = "alice/pushed", model()
    sha = author.push_to_hub(name, private=True, commit_message="weights").oid
    tokenizer().push_to_hub(name, commit_message="words")
    task = pipeline("fill-mask", model=name, trust_remote_code=True)
    again = AutoModelForMaskedLM.from_pretrained(name, revision=sha)
    found = (task.model, again, AutoModel.from_pretrained(name))
    return {
        "files": files(name),
        "private": api.model_info(name).private,
        "logits": [logits(author), logits(again)],
        "answer": [answer["token_str"] for answer in task(SENTENCE)],
        "classes": [f"{type(each).__module__}.{type(each).__name__}" for each in found],
    }


def proposed() -> Any:
    """A second version, as a pull request and on a branch."""
    name, change = "alice/pushed", model(seed=1)
    request = change.push_to_hub(name, create_pr=True, commit_message="second").pr_revision
    change.push_to_hub(name, revision="second", commit_message="second")
    found = {word: AutoModelForMaskedLM.from_pretrained(name, revision=word) for word in ("main", "second", request)}
    return {word: logits(each) for word, each in {"first": model(), "change": change, **found}.items()}


def leftovers() -> Any:
    """The refusal of shards where a single file lies, which would be loaded in their place."""
    name, author = "alice/leftovers", model()
    author.push_to_hub(name, private=True)
    before = api.model_info(name).sha
    try:
        author.push_to_hub(name, max_shard_size="1KB")
    except ValueError as error:
        return [str(error), api.model_info(name).sha == before]


def saved() -> Any:
    """`save_pretrained` that pushes."""
    name, author = "alice/saved", model()
    author.save_pretrained(tempfile.mkdtemp(), push_to_hub=True, repo_id=name, private=True)
    again = AutoModelForMaskedLM.from_pretrained(name)
    return {"files": files(name), "logits": [logits(author), logits(again)]}


class Wait(TrainerCallback):
    """Let each push end before training goes on: a push skips the rest of a slow one."""

    run: Trainer

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.run._finish_current_push()


def checkpoint() -> Any:
    """A training that pushes checkpoints: the files when it ends, and after the last push."""
    settings = {"max_steps": 2, "save_steps": 1, "per_device_train_batch_size": 1, "use_cpu": True}
    quiet = {"report_to": "none", "disable_tqdm": True, "logging_strategy": "no"}
    name = "alice/checkpoint"
    hub = {"push_to_hub": True, "hub_model_id": name, "hub_strategy": "checkpoint", "hub_private_repo": True}
    arguments = TrainingArguments(tempfile.mkdtemp(), **settings, **quiet, **hub)
    rows = [{"input_ids": [3 + (row + at) % 5 for at in range(6)], "labels": [3 + row % 5] * 6} for row in range(8)]
    wait = Wait()
    data = {"train_dataset": rows, "processing_class": tokenizer()}
    run = wait.run = Trainer(model(), arguments, **data, callbacks=[wait, CodeCallback()])
    run.train()
    during = files(name)
    run.push_to_hub(commit_message="last")
    again = AutoModelForMaskedLM.from_pretrained(name)
    return {"during": during, "after": files(name), "logits": [logits(run.model), logits(again)]}
