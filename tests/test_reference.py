"""The reference loops equal independent implementations of torch and transformers, values and gradients."""

import math

import pytest
import torch
from torch.nn import functional as F
from transformers import LlamaConfig, ViTConfig
from transformers.activations import ACT2FN
from transformers.loss.loss_utils import ForQuestionAnsweringLoss
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import bloom_gelu_forward, build_alibi_tensor
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as apply_partial_rotary
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.vit.modeling_vit import ViTEmbeddings
from transformers.trainer_pt_utils import LabelSmoother

import reference

EXACT = 1e-12


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def assert_same(actual, expected, leaves=(), tolerance=EXACT):
    """Compare values and, for every leaf, the gradient of a random weighting of the output."""
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    assert (actual - expected).abs().max() <= tolerance
    upstream = torch.randn_like(expected)
    if leaves:
        mine = torch.autograd.grad(actual, leaves, upstream, retain_graph=True)
        theirs = torch.autograd.grad(expected, leaves, upstream, retain_graph=True)
        for one, other in zip(mine, theirs, strict=True):
            assert (one - other).abs().max() <= tolerance


def llama(scaling, **differences):
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 16, "max_position_embeddings": 64}
    return LlamaConfig(**sizes, rope_parameters=scaling, **differences)


SCALINGS = {
    "default": {},
    "linear": {"factor": 3.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 64},
    "yarn wide": {"factor": 8.0, "original_max_position_embeddings": 4096, "beta_fast": 16.0, "beta_slow": 2.0},
    "yarn untruncated": {"factor": 4.0, "original_max_position_embeddings": 512, "truncate": False},
    "yarn mscale": {"factor": 4.0, "original_max_position_embeddings": 64, "mscale": 0.7, "mscale_all_dim": 1.2},
    "yarn given": {"factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": 0.9},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    },
}


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("sequence_length", [None, 10, 64, 65, 200])
def test_rope_frequencies(name, sequence_length):
    scaling = {"rope_type": name.split()[0], "rope_theta": 10000.0, **SCALINGS[name]}
    mine, factor = reference.rope_frequencies(
        16, 10000.0, scaling, max_position_embeddings=64, sequence_length=sequence_length
    )
    config = llama(scaling)
    if scaling["rope_type"] == "default":
        theirs, expected_factor = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        theirs, expected_factor = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, None, seq_len=sequence_length)
    assert factor == pytest.approx(expected_factor, abs=EXACT)
    # transformers computes frequencies in float32.
    assert ((mine - theirs) / mine).abs().max() <= 1e-6


def test_rope_frequencies_of_llama_3_2():
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = LlamaConfig(hidden_size=2048, num_attention_heads=32, head_dim=64, rope_parameters=scaling)
    mine, _ = reference.rope_frequencies(64, 500000.0, scaling)
    theirs, _ = ROPE_INIT_FUNCTIONS["llama3"](config)
    assert ((mine - theirs) / mine).abs().max() <= 1e-6


@pytest.mark.parametrize("rotated", [8, 4])
def test_rotate(rotated):
    heads, positions = draw(2, 3, 5, 8), torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]])
    frequencies, _ = reference.rope_frequencies(rotated, 100.0)
    angles = positions[..., None] * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    # GPT-NeoX's function is Llama's with the unrotated rest passed through.
    apply = apply_rotary_pos_emb if rotated == 8 else apply_partial_rotary
    theirs, _ = apply(heads, heads, 1.3 * angles.cos(), 1.3 * angles.sin())
    assert_same(reference.rotate_heads(heads, positions, frequencies, 1.3), theirs, [heads])


def test_rotated_scores_depend_on_the_difference():
    query, key = draw(8), draw(8)
    frequencies, _ = reference.rope_frequencies(8, 10000.0)

    def score(t, s):
        return (reference.rotate(query, t, frequencies) * reference.rotate(key, s, frequencies)).sum()

    assert abs(score(3, 1) - score(103, 101)) <= EXACT < abs(score(3, 1) - score(1, 3))


@pytest.mark.parametrize("dim", [8, 7])
def test_sinusoidal_tables(dim):
    theirs = MarianSinusoidalPositionalEmbedding(11, dim).create_weight().double()
    mine = reference.sinusoidal_concat_table(11, dim)
    assert (mine - theirs).abs().max() <= 1e-7
    half = (dim + 1) // 2
    interleaved = reference.sinusoidal_table(11, dim)
    assert torch.equal(interleaved[:, 0::2], mine[:, :half]) and torch.equal(interleaved[:, 1::2], mine[:, half:])


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 8, 12, 16, 20, 25])
def test_alibi(heads):
    slopes = torch.tensor(reference.alibi_slopes(heads))
    theirs = build_alibi_tensor(torch.ones(1, 9), heads, torch.float32)[:, 0]
    assert len(slopes) == heads and (slopes[:, None] * torch.arange(9) - theirs).abs().max() <= 1e-6
    queries, keys = torch.tensor([[4, 8]]), torch.arange(9)[None]
    bias = reference.alibi_bias(heads, queries, keys)
    # Bloom adds slope * key, which differs from -slope * (query - key) by a constant of the row.
    assert bias.shape == (1, heads, 2, 9) and bias[0, :, 0, 4].abs().max() == 0
    assert ((bias - theirs[None, :, None])[0, :, 1] + 8 * slopes[:, None]).abs().max() <= 1e-5
    assert torch.equal(bias[0, :, 0, :4], bias[0, :, 0, 5:].flip(-1))


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (8, 20), (16, 50)])
def test_t5_buckets(bidirectional, buckets, furthest):
    offsets = torch.arange(-300, 301)
    theirs = T5Attention._relative_position_bucket(offsets, bidirectional, buckets, furthest)
    mine = [reference.t5_bucket(offset, bidirectional, buckets, furthest) for offset in offsets.tolist()]
    assert mine == theirs.tolist()


def test_t5_bias():
    table = draw(8, 3)
    queries, keys = torch.tensor([[5, 6, 7], [0, 1, 2]]), torch.arange(7).repeat(2, 1)
    offsets = keys[:, None, :] - queries[:, :, None]
    theirs = F.embedding(T5Attention._relative_position_bucket(offsets, True, 8, 20), table).permute(0, 3, 1, 2)
    assert_same(reference.t5_bias(table, queries, keys, True, 20), theirs, [table])


def test_patterns():
    picture = {
        "full": lambda q, k: reference.full(q, k),
        "causal": lambda q, k: reference.causal(q, k),
        "sliding": lambda q, k: reference.sliding(q, k, 2),
        "block_sparse": lambda q, k: reference.block_sparse(q, k, 2),
        "row": lambda q, k: reference.row(q, k, 1, 2),
        "column": lambda q, k: reference.column(q, k, 1, 2),
        "convolutional": lambda q, k: reference.convolutional(q, k, 1, 4, 3),
    }
    drawn = {
        name: ["".join("x" if visible(q, k) else "." for k in range(7)) for q in range(7)]
        for name, visible in picture.items()
    }
    assert drawn == {
        "full": ["xxxxxxx"] * 7,
        "causal": ["x......", "xx.....", "xxx....", "xxxx...", "xxxxx..", "xxxxxx.", "xxxxxxx"],
        "sliding": ["xx.....", "xxx....", ".xxx...", "..xxx..", "...xxx.", "....xxx", ".....xx"],
        "block_sparse": ["xxxxxxx", "xxxxxxx", "xxxxxx.", "xxxxxx.", "xxxxxxx", "xxxxxxx", "xx..xxx"],
        "row": ["xxxxxxx", "xxxx...", "xxxxx..", "xxxxxx.", "x.xxxxx", "x..xxxx", "x...xxx"],
        "column": ["xxxxxxx", "xx.x.x.", "x.x.x.x", "xx.x.x.", "x.x.x.x", "xx.x.x.", "x.x.x.x"],
        "convolutional": ["xxxxxxx", "xxx.xxx", "xxxx.xx", "x.xxx.x", "xx.xxx.", "xxx.xxx", "xxxx.xx"],
    }


def test_patterns_of_the_figure():
    """Figure 11 of the DALL-E paper: the last token of 4 x 4 that follow 6 of a text."""
    shown = {
        "row": [k for k in range(22) if reference.row(21, k, 6, 4)],
        "column": [k for k in range(22) if reference.column(21, k, 6, 4)],
        "convolutional": [k for k in range(22) if reference.convolutional(21, k, 6, 4, 3)],
    }
    assert {name: [k - 6 for k in keys[6:]] for name, keys in shown.items()} == {
        "row": [11, 12, 13, 14, 15],
        "column": [3, 7, 11, 15],
        "convolutional": [10, 11, 12, 14, 15],
    }
    assert all(keys[:6] == list(range(6)) for keys in shown.values())


def test_visibility():
    keep = torch.tensor([[0, 1, 1, 1, 1]])
    visible = reference.visibility(reference.causal, keep=keep, documents=torch.tensor([[0, 0, 0, 1, 1]]))
    rows = [[s for s in range(5) if visible(0, t, s)] for t in range(5)]
    assert rows == [[], [1], [1, 2], [3], [3, 4]]
    cached = reference.visibility(reference.causal, first_query=3)
    assert [s for s in range(5) if cached(0, 0, s)] == [0, 1, 2, 3]
    shifted = reference.visibility(lambda q, k: reference.block_sparse(q, k, 2), positions=torch.tensor([[0, 0, 1, 2]]))
    assert shifted(0, 2, 1) and shifted(0, 3, 0)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("masked", ["nothing", "causal", "padded"])
def test_attention(groups, masked):
    q, k, v, bias = draw(2, 4, 5, 3), draw(2, groups, 7, 3), draw(2, groups, 7, 3), draw(1, 4, 5, 7)
    keep = torch.tensor([[1] * 7, [0, 0, 1, 1, 1, 1, 0]])
    visible = {
        "nothing": None,
        "causal": reference.visibility(reference.causal, first_query=2),
        "padded": reference.visibility(keep=keep),
    }[masked]
    mask = torch.tensor(
        [[[[visible is None or visible(b, t, s) for s in range(7)] for t in range(5)]] for b in range(2)]
    )
    output, weights = reference.attention(q, k, v, 0.7, visible, bias)
    additive = bias.masked_fill(~mask, -math.inf)
    expected = F.scaled_dot_product_attention(q, k, v, additive, scale=0.7, enable_gqa=True)
    assert_same(output, expected, [q, k, v, bias])
    scores = q @ k.repeat_interleave(4 // groups, 1).transpose(-1, -2) * 0.7 + additive
    assert_same(weights, scores.softmax(-1), [q, k, bias])


def test_attention_of_a_blind_query_is_zero():
    q, k, v = draw(1, 2, 3, 4), draw(1, 2, 3, 4), draw(1, 2, 3, 4)
    output, weights = reference.attention(q, k, v, visible=lambda b, t, s: s < t)
    assert output[0, :, 0].abs().max() == 0 and weights[0, :, 0].abs().max() == 0
    assert all(torch.isfinite(grad).all() for grad in torch.autograd.grad(output.sum(), [q, k, v]))


def test_multi_head_attention():
    module = torch.nn.MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64)
    torch.nn.init.normal_(module.in_proj_bias)
    torch.nn.init.normal_(module.out_proj.bias)
    x, memory, keep = draw(2, 5, 12), draw(2, 7, 12), torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    expected = module(x, memory, memory, key_padding_mask=keep == 0, average_attn_weights=False)
    q_weight, k_weight, v_weight = module.in_proj_weight.chunk(3)
    q_bias, k_bias, v_bias = module.in_proj_bias.chunk(3)
    output, weights = reference.multi_head_attention(
        x, memory, q_weight, q_bias, k_weight, k_bias, v_weight, v_bias, module.out_proj.weight, module.out_proj.bias,
        3, 3, visible=reference.visibility(keep=keep),
    )  # fmt: skip
    assert_same(output, expected[0], [x, memory, *module.parameters()])
    assert_same(weights, expected[1], [x, memory])


def test_norms():
    x, weight, bias = draw(2, 5, 7), draw(7), draw(7)
    expected = F.layer_norm(x, (7,), weight, bias, 1e-5)
    assert_same(reference.layer_norm(x, weight, bias, 1e-5), expected, [x, weight, bias])
    assert_same(reference.rms_norm(x, weight, 1e-6), F.rms_norm(x, (7,), weight, 1e-6), [x, weight])
    # transformers takes the mean square in float32 whatever the dtype, so it cannot be met more closely.
    llama_norm = LlamaRMSNorm(7).double()
    assert_same(reference.rms_norm(x, llama_norm.weight, 1e-6), llama_norm(x), tolerance=1e-6)


@pytest.mark.parametrize("name", reference.ACTIVATIONS)
def test_activations(name):
    x = draw(4, 9)
    official = bloom_gelu_forward if name == "gelu_bloom" else ACT2FN[name]
    assert_same(reference.ACTIVATIONS[name](5 * x), official(5 * x), [x])


def test_feed_forwards_and_residuals():
    x, up, down, gate = draw(2, 5, 4), draw(9, 4), draw(4, 9), draw(9, 4)
    up_bias, down_bias, gate_bias = draw(9), draw(4), draw(9)
    leaves = [x, up, down, up_bias, down_bias]
    mlp = F.linear(F.relu(F.linear(x, up, up_bias)), down, down_bias)
    assert_same(reference.mlp(x, up, up_bias, down, down_bias, reference.relu), mlp, leaves)
    glu = F.linear(F.silu(F.linear(x, gate, gate_bias)) * F.linear(x, up, up_bias), down, down_bias)
    mine = reference.glu(x, gate, gate_bias, up, up_bias, down, down_bias, reference.silu)
    assert_same(mine, glu, [*leaves, gate, gate_bias])
    assert_same(reference.linear(x, up), x @ up.T, [x, up])
    assert reference.residual_pre_norm(3.0, lambda y: 10 * y, lambda y: y + 1) == 43.0
    assert reference.residual_post_norm(3.0, lambda y: 10 * y, lambda y: y + 1) == 34.0


def test_embeddings():
    table, types = draw(11, 6), draw(2, 6)
    ids, segments = torch.tensor([[1, 10, 3], [3, 3, 0]]), torch.tensor([[0, 0, 1], [1, 1, 1]])
    expected = F.embedding(ids, table) * 6**0.5 + F.embedding(segments, types)
    assert_same(reference.token_embeddings(ids, table, 6**0.5, segments, types), expected, [table, types])
    assert_same(reference.learned_positions(ids, table), F.embedding(ids, table), [table])
    shifted = reference.shift_right(torch.tensor([[4, 5, -100, -100]]), 2, 0)
    assert shifted.tolist() == [[2, 4, 5, 0]]


def test_patches():
    pixels, weight, bias = draw(2, 3, 6, 10), draw(5, 3, 2, 2), draw(5)
    expected = F.conv2d(pixels, weight, bias, stride=2).flatten(2).transpose(1, 2)
    assert_same(reference.patch_embeddings(pixels, weight, bias), expected, [pixels, weight, bias])
    assert_same(reference.patches(pixels[0], 2), F.unfold(pixels[0], 2, stride=2).T, [pixels])


@pytest.mark.parametrize("size", [(5, 3), (7, 7), (3, 4), (2, 9), (1, 1)])
def test_bicubic(size):
    grid = draw(5, 3, 4)
    expected = F.interpolate(grid.permute(2, 0, 1)[None], size=size, mode="bicubic", align_corners=False)
    assert_same(reference.bicubic(grid, *size), expected[0].permute(1, 2, 0), [grid])


def test_resized_positions():
    embeddings = ViTEmbeddings(ViTConfig(hidden_size=8, image_size=12, patch_size=4)).double()
    torch.nn.init.normal_(embeddings.position_embeddings)
    expected = embeddings.interpolate_pos_encoding(torch.zeros(1, 1 + 10, 8), 20, 8)[0]
    mine = reference.resize_positions(embeddings.position_embeddings[0], 1, (3, 3), (5, 2))
    assert_same(mine, expected, [embeddings.position_embeddings])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(smoothing):
    logits, labels = draw(3, 5, 7), torch.randint(7, (3, 5))
    labels[1, 2:] = -100
    expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)
    assert_same(reference.cross_entropy(logits, labels, label_smoothing=smoothing), expected, [logits])
    following = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), label_smoothing=smoothing)
    assert_same(reference.next_token_loss(logits, labels, label_smoothing=smoothing), following, [logits])
    halved = reference.cross_entropy(logits, labels, label_smoothing=smoothing, count=24)
    assert_same(halved, expected / 2, [logits])
    assert reference.cross_entropy(logits, torch.full_like(labels, -100)) == 0


def test_label_smoothing_is_the_trainers():
    logits, labels = draw(3, 5, 7), torch.randint(7, (3, 5))
    labels[1, 2:] = -100
    # Trainer's smoother sums over the vocabulary in float32 whatever the dtype, so it cannot be met more closely.
    plain = LabelSmoother(epsilon=0.1)({"logits": logits}, labels)
    assert_same(reference.cross_entropy(logits, labels, label_smoothing=0.1), plain, [logits], 1e-7)
    shifted = LabelSmoother(epsilon=0.1)({"logits": logits}, labels, shift_labels=True)
    assert_same(reference.next_token_loss(logits, labels, label_smoothing=0.1), shifted, [logits], 1e-7)


def test_other_losses():
    logits, targets = draw(3, 5), torch.rand(3, 5, dtype=torch.float64).round()
    expected = F.binary_cross_entropy_with_logits(40 * logits, targets)
    assert_same(reference.binary_cross_entropy(40 * logits, targets), expected, [logits])
    assert_same(reference.mean_squared_error(logits, targets), F.mse_loss(logits, targets), [logits])
    assert_same(reference.mean_squared_error(logits, targets, 30), F.mse_loss(logits, targets) / 2, [logits])
    pixels, guess, masked = draw(2, 3, 4, 6), draw(2, 3, 4, 6), torch.tensor([[1, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 1]])
    values = masked.reshape(2, 1, 2, 3).repeat_interleave(2, 2).repeat_interleave(2, 3).expand(2, 3, 4, 6).bool()
    expected = (pixels - guess)[values].abs().mean()
    assert_same(reference.masked_pixel_loss(pixels, guess, masked, 2), expected, [guess])


def test_span_loss():
    start_logits, end_logits = draw(3, 6), draw(3, 6)
    # 9 lies outside the text: it is ignored.
    starts, ends = torch.tensor([0, 5, 9]), torch.tensor([2, 9, 9])
    expected = ForQuestionAnsweringLoss(start_logits, end_logits, starts, ends)
    assert_same(reference.span_loss(start_logits, end_logits, starts, ends), expected, [start_logits, end_logits])


def test_mean_pool():
    hidden, keep = draw(3, 5, 4), torch.tensor([[1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [0] * 5])
    expected = (hidden * keep[..., None]).sum(1) / keep.sum(1).clamp(min=1)[:, None]
    assert_same(reference.mean_pool(hidden, keep), expected, [hidden])


def test_softmax_stays_finite():
    scores = torch.tensor([1e4, 0.0, -1e4], dtype=torch.float64)
    assert torch.equal(reference.softmax(scores), scores.softmax(-1))
    assert_same(reference.log_softmax(scores), scores.log_softmax(-1))


def test_gru_is_torchs_cell():
    cell = torch.nn.GRUCell(3, 4, dtype=torch.float64)
    weights = (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
    x, state = draw(3), draw(4)
    assert_same(reference.gru_step(x, state, *weights), cell(x, state), [x, state, *weights])


def test_lstm_is_torchs_cell():
    cell = torch.nn.LSTMCell(3, 4, dtype=torch.float64)
    weights = (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
    x, state, memory = draw(3), draw(4), draw(4)
    for ours, expected in zip(reference.lstm_step(x, state, memory, *weights), cell(x, (state, memory)), strict=True):
        assert_same(ours, expected, [x, state, memory])


def test_additive_scores_and_context_are_the_matrix_formula():
    state, memory, w, u, b, v = draw(4), draw(3, 5), draw(6, 4), draw(6, 5), draw(6), draw(6)
    scores = torch.tanh(w @ state + memory @ u.T + b) @ v
    assert_same(reference.additive_scores(state, memory, w, u, b, v), scores, [state, memory, w, u, b, v])
    context, weights = reference.weighted_context(scores, memory)
    assert_same(weights, scores.softmax(-1))
    assert_same(context, scores.softmax(-1) @ memory, [memory])


def test_maxout_is_a_pool_of_two():
    x, weight, bias = draw(5), draw(6, 5), draw(6)
    pooled = F.max_pool1d((weight @ x + bias)[None], 2)[0]
    assert_same(reference.maxout(x, weight, bias), pooled, [x, weight, bias])
