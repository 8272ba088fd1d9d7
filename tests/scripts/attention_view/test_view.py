"""The page holds what was captured, of every family, whatever its tokens say, and fetches nothing."""

import base64
import hashlib
import json
import re
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from transformers import AutoModel

import qkv
import stock_folders
import tiny
from errors import raises_sentence
from families.attention_pages import HOSTILE, HostileTokenizer, data_of, unpacked, weights_of
from families.attentions import FAMILIES, built
from qkv.scripts.attention.layers import AXES
from qkv.scripts.attention_view import page as pages
from qkv.scripts.attention_view import positions
from qkv.scripts.attention_view import reading as readings
from qkv.scripts.attention_view import view as views
from qkv.scripts.attention_view.page import as_json, page
from qkv.scripts.attention_view.stacks import colour_scale
from qkv.scripts.attention_view.view import parts_of


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_weights_in_the_page_are_those_captured(name: str) -> None:
    row = 1
    model, inputs, names = built(name)
    view = qkv.attend(model, inputs, row=row)
    page, notes = view.page()
    data = data_of(page)
    assert {stack["name"] for stack in data["stacks"]} == set(names)
    with qkv.capture_attention(model, inputs) as captured:
        pass
    assert len(notes) == any(float(record.weights.min()) < 0 for record in captured)
    if name == "qkv vit":
        share, index = captured.outputs.logits[row].softmax(-1).max(-1)
        assert view.answer == f"Predicted: {model.config.id2label[int(index)]}, {float(share):.1%}"
    for number, stack in enumerate(view.stacks):
        records = captured.select(stack.name)
        whole = torch.stack([record.weights[min(row, len(record.weights) - 1)] for record in records]).float().numpy()
        shown, greatest = weights_of(data, number)
        # Padding is left out, which stands at the end, and which real queries give no weight.
        queries, keys = shown.shape[2:]
        assert keys <= whole.shape[3] and queries <= whole.shape[2] and whole[:, :, :queries, keys:].max(initial=0) == 0
        if stack.queries.kind == "objects":  # which are sorted
            assert shown.shape == whole.shape
            continue
        apart = np.abs(shown - whole[:, :, :queries, :keys])
        assert (apart <= greatest[..., None] / 255 + 1e-7).all() and apart.max() < whole.max() / 10
        assert data["stacks"][number]["layers"] == [record.layer for record in records]


@pytest.mark.parametrize("name", ["qkv bert", "qkv gpt2", "qkv transformer", "qkv clip", "stock bert"])
def test_padding_is_not_shown(name: str) -> None:
    model, inputs, _ = built(name)
    mask = inputs["attention_mask"]
    row = int(mask.sum(1).argmin())
    assert mask[row].sum() < mask.shape[1]
    view = qkv.attend(model, inputs, row=row)
    stack = next(each for each in view.stacks if each.name in ("encoder", "text", "decoder"))
    assert len(stack.queries) == len(stack.keys) == int(mask[row].sum())
    assert stack.keys.labels == [str(number) for number in inputs["input_ids"][row][mask[row].bool()].tolist()]


def test_objects_are_those_of_the_highest_scores_first() -> None:
    model, inputs, _ = built("qkv detr")
    with mock.patch.object(readings, "OBJECTS", 3):
        view = qkv.attend(model, inputs, row=1)
    cross = next(stack for stack in view.stacks if stack.name == "cross")
    with torch.no_grad():
        outputs = model(**inputs)
    scores = outputs.logits[1].softmax(-1)[:, :-1].amax(-1)
    order = scores.argsort(descending=True)[:3].tolist()
    with qkv.capture_attention(model, inputs) as captured:
        pass
    expected = captured.select("cross", -1)[0].weights[1][:, order].detach().numpy()
    np.testing.assert_allclose(cross.weights[-1], expected, atol=1e-6)
    x, y, width, height = outputs.pred_boxes[1, order[0]].tolist()
    assert cross.queries.boxes[0] == pytest.approx([x - width / 2, y - height / 2, width, height], abs=1e-3)
    assert cross.queries.labels[0].endswith(f"{float(scores[order[0]]):.0%}")
    decoder = next(stack for stack in view.stacks if stack.name == "decoder")
    assert decoder.queries is cross.queries and decoder.keys.rest == len(scores) - 3
    np.testing.assert_allclose(decoder.weights.sum(-1), 1, atol=1e-5)
    assert view.notes == [f"3 of {len(scores)} object queries are shown, those of the highest scores"]


def test_masked_keys_the_scale_and_the_end_of_the_prompt_are_in_the_page() -> None:
    model = tiny.jitter(qkv.QkvDecoderForCausalLM(tiny.decoder("llama")))
    reading = readings.Reading(model, {"input_ids": torch.arange(5, 13)[None]}, prompt=3, last=[9])
    data = data_of(views.view_of("", reading, None, None).page()[0])
    (stack,) = data["stacks"]
    masked = np.unpackbits(unpacked(stack["masked"], "u1")).reshape(2, 4, 8, 8)
    assert (masked == np.triu(np.ones((8, 8)), 1)).all() and stack["scale"] == 1
    assert data["sequences"][stack["keys"]]["prompt"] == 3
    assert positions.Positions("tokens", list("abcde"), prompt=3).select([0, 2, 3]).prompt == 2


def test_nearly_even_attention_is_pale() -> None:
    even = np.full((2, 2, 4, 65), 1 / 65, dtype=np.float32)
    assert colour_scale(even) == pytest.approx(5 / 65, abs=0.01) and colour_scale(even, even * 20) == 0.31
    assert colour_scale(even[..., :4]) == colour_scale(even * 70) == 1, "never above all of the weight"


def test_tokens_are_data_and_never_markup() -> None:
    model = qkv.QkvDecoderForCausalLM(tiny.decoder())
    ids = torch.arange(len(HOSTILE))[None]
    page, _ = qkv.attend(model, {"input_ids": ids}, processor=HostileTokenizer()).page()
    assert page.count("<script") == 2 and page.count("</script>") == 2 and "alert(1)</" not in page
    labels = data_of(page)["sequences"][0]["labels"]
    assert labels == HOSTILE and page.encode()  # a lone surrogate is escaped, too
    title = qkv.scripts.attention_view.view.AttentionView("<script>", []).page()[0]
    assert "<title>&lt;script&gt;</title>" in title


def test_ten_thousand_tokens_are_cut_and_it_is_said() -> None:
    config = qkv.QkvDecoderConfig(
        vocab_size=61, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, position="rope",
        max_position_embeddings=10_000,
    )  # fmt: skip
    model = qkv.QkvDecoderForCausalLM(config)
    ids = torch.randint(4, 60, (1, 10_000))
    with mock.patch.object(readings, "CAPTURED", 2**22):
        view = qkv.attend(model, {"input_ids": ids})
    page, notes = view.page()
    data = data_of(page)
    shown, _ = weights_of(data, 0)
    assert len(page) < 1_000_000 and len(notes) == 2
    assert notes[1].startswith("The first 313 tokens are shown; the weights of the other 9,687")
    assert notes[0].startswith("Of 10,000 tokens only the first 104 are shown as queries")
    keys = data["sequences"][data["stacks"][0]["keys"]]
    assert shown.shape[-1] == len(keys["labels"]) + 1 and keys["rest"] + len(keys["labels"]) == 10_000
    # Each weight is rounded to one of 255 steps of its row's greatest.
    assert (abs(shown.sum(-1) - 1) <= shown.shape[-1] * shown.max(-1) / 510 + 1e-3).all()


def test_a_processor_has_a_tokenizer_and_an_image_processor() -> None:
    image = SimpleNamespace(image_mean=0.5)
    assert parts_of(SimpleNamespace(tokenizer="t", image_processor=image)) == {"tokenizer": "t", "processor": image}
    assert parts_of(image) == {"tokenizer": None, "processor": image}


def test_it_is_saved_and_framed(tmp_path: Path) -> None:
    model, inputs, _ = built("qkv vit")
    view, table = qkv.attend(model, inputs), qkv.inspect(model, {"pixel_values": inputs["pixel_values"][:1]})
    for probe in ("entropy", "distance"):
        expected = [row["value"] for row in table.select(probe)]
        np.testing.assert_allclose(getattr(view.stacks[0], probe).flatten(), expected, rtol=1e-4)
    view.save(tmp_path / "view.html")
    assert (tmp_path / "view.html").read_bytes().startswith(b"<!doctype html>")
    with raises_sentence("view.gif", ".html"):
        view.save(tmp_path / "view.gif")
    assert [path.name for path in tmp_path.iterdir()] == ["view.html"]
    (stack,) = qkv.attend(model.train(), inputs, layers=[-1], heads=[2]).stacks
    assert model.training and (stack.layers, stack.heads) == ([1], [2])
    frame = view._repr_html_()
    assert frame.startswith("<iframe srcdoc=") and 'sandbox="allow-scripts"' in frame and frame.count("<") == 2


@torch.no_grad()
def test_pairs_and_sequences_of_one_residue_are_shown() -> None:
    torch.manual_seed(0)
    model = tiny.jitter(qkv.QkvPairModel(tiny.pair("evoformer", num_recycles=1, chunk_size=4))).eval()
    inputs, row, residue = tiny.alignment(), 1, 2
    with qkv.capture_attention(model, inputs, layers=dict.fromkeys(("encoder", *AXES.values()))) as captured:
        pass
    shown = {stack.name: stack for stack in qkv.attend(model, inputs, row=row, residue=residue, layers=[1]).stacks}
    assert list(shown) == ["encoder", *(f"{name}, residue 2" for name in AXES.values())]
    length, sequences = (int(inputs[name][row].sum()) for name in ("attention_mask", "msa_attention_mask"))
    for name, count in {"column": 1 + sequences, "starting": length, "ending": length}.items():
        stack = shown[f"{name}, residue 2"]
        weights = captured.select(name, 1)[-1].weights.unflatten(0, (tiny.BATCH, tiny.LENGTH))[row, residue]
        torch.testing.assert_close(torch.from_numpy(stack.weights[0]), weights[:, :count, :count], rtol=1e-5, atol=1e-6)
    assert shown["column, residue 2"].keys.labels == ["chain", "sequence 1", "sequence 2"]
    (chain,) = qkv.attend(model, inputs, row=row, layers=[1]).stacks
    assert chain.name == "encoder" and len(chain.queries) == length
    records = captured.select("encoder", 1)
    weights = records[-1].weights.unflatten(0, (tiny.BATCH, -1))[row, 0, :, :length, :length]
    torch.testing.assert_close(torch.from_numpy(chain.weights[0]), weights, rtol=1e-5, atol=1e-6)
    only = qkv.attend(model, inputs, residue=0, layers={"starting": 0}, heads=[1]).stacks
    assert [(stack.name, stack.layers, stack.heads) for stack in only] == [("starting, residue 0", [0], [1])]
    assert not model.training
    for name in AXES.values():
        with raises_sentence(repr(name), "residue="):
            qkv.attend(model, inputs, layers={name: 0})
    with raises_sentence("residue=9", "0 to 8"):
        qkv.attend(model, inputs, residue=9)
    with raises_sentence("residue=0", "QkvEncoderModel"):
        qkv.attend(qkv.QkvEncoderModel(tiny.encoder()), tiny.text(), residue=0)


def test_mistakes_are_named(tmp_path: Path) -> None:
    model, inputs, _ = built("qkv bert")
    with raises_sentence("pair=", "row"):
        qkv.attend(model, inputs, pair="b")
    with raises_sentence("inputs='a text'", "dict"):
        qkv.attend(model, "a text")
    with raises_sentence("row=2", "2"):
        qkv.attend(model, inputs, row=2)
    with raises_sentence("layers", "7"):
        qkv.attend(model, inputs, layers=[7])
    with raises_sentence("unknown=", "pair"):
        qkv.attend("somewhere", "a text", unknown=1)
    swin = AutoModel.from_pretrained(stock_folders.swin(tmp_path / "swin"))
    with raises_sentence("SwinModel", "windows"):
        qkv.attend(swin, {"pixel_values": torch.rand(2, 3, 16, 16)})
    delta = qkv.QkvDecoderForCausalLM(tiny.decoder("deltanet"))
    with raises_sentence("kernel='gated_delta'"):
        qkv.attend(delta, tiny.text())


# Safety ---------------------------------------------------------------------------------------------------------------


def made() -> str:
    return page("a </title> & title", [], {"answer": "", "notes": [], "film": None})


def test_the_policy_names_the_program_and_the_styles_of_the_page() -> None:
    text = made()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy


def test_nothing_is_fetched_and_no_html_is_made_of_texts() -> None:
    program = pages.resource("page.js")
    for name in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "XMLHttp"):
        assert name not in program
    namespaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}
    assert set(re.findall(r"(?:https?:)?//[\w.]+/[^\s\"']*", made())) <= namespaces


def test_data_ends_no_element() -> None:
    given = {"a": "</script><!--", "b": "\u2028\ud800&"}
    text = as_json(given)
    assert not set("<>&") & set(text) and text.isascii() and json.loads(text) == given
    assert data_of(made())["title"] == "a </title> & title"
    assert "<title>a &lt;/title&gt; &amp; title</title>" in made()
