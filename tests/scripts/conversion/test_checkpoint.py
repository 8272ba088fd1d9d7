"""Copies of stock folders: certified, made once, and never of another model. `test_convert.py` has the command."""

from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from qkv.scripts.conversion import checkpoint
from qkv.scripts.conversion.checkpoint import certified_copy

SIZE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 11, "intermediate_size": 24}


def test_a_stock_model_is_certified_once_and_never_wrong(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    BertForMaskedLM(BertConfig(**SIZE)).save_pretrained(tmp_path / "stock")
    copy = certified_copy(tmp_path / "stock")
    written = (copy / "certificate.json").stat().st_mtime_ns
    assert certified_copy(tmp_path / "stock") == copy and (copy / "certificate.json").stat().st_mtime_ns == written
    BertForMaskedLM(BertConfig(**SIZE)).save_pretrained(tmp_path / "stock")
    original = checkpoint.read

    def read(model: torch.nn.Module, **options: object) -> torch.nn.Module:
        ours = original(model, **options)
        ours.model.embed_tokens.weight.data[3].add_(1)
        return ours

    monkeypatch.setattr(checkpoint, "read", read)
    with pytest.raises(RuntimeError, match="has no equal copy to start from: "):
        certified_copy(tmp_path / "stock")
    assert [path.parent for path in (tmp_path / "cache").rglob("config.json")] == [copy]
