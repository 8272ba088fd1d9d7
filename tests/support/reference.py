"""Every mechanism again, as the slow loop its paper describes; the fast ones must equal these, values and gradients.

Nothing here imports qkv, and mechanisms work on one vector at a time, so an error of the package is not repeated.
All functions are differentiable and keep the dtype of their tensors; tables of constants are float64.

Shapes: B batch, T queries, S keys, D hidden, H heads, G key-value heads, K head_dim, F intermediate, V vocabulary.
Papers, with https://arxiv.org/abs/ before the number: Ainslie 2305.13245, Ba 1607.06450, Bahdanau 1409.0473, Beltagy
2004.05150, Black 2204.06745, Carion 2005.12872, Chi 2205.09921, Child 1904.10509, Cho 1406.1078, Clark
2020 2003.10555, Clark 2019 1906.04341, Devlin 1810.04805, Dosovitskiy 2010.11929, Elfwing 1702.03118, Gehring
1705.03122, Hendrycks 1606.08415, Jiang 2023 2310.06825, Katharopoulos 2006.16236, Krell 2107.02027, DeepSeek-AI
2412.19437, Fedus 2101.03961, Jiang 2024 2401.04088, OpenAI 2508.10925, Shazeer 2017 1701.06538, Zoph 2202.08906,
Olsson 2209.11895, Park 2019 1904.08779, Park 2020 1912.05533, Press 2108.12409, Qin 2202.08791, Raffel
1910.10683, Ramesh 2102.12092, Reimers 1908.10084, Rezatofighi 1902.09630, Shazeer 2020 2002.05202, Su 2104.09864, Sun
2212.10554, Szegedy 1512.00567, Touvron 2103.17239, Vaswani 2017 1706.03762, Vaswani 2018 1803.07416, Xie 2111.09886,
Xiong 2002.04745, Yang & Kautz 2412.06464, Yang 2406.06484, Zaheer 2007.14062, Zhang 1910.07467. With https://doi.org/
before it: Dunn 10.1093/bioinformatics/btm604, Hochreiter 10.1162/neco.1997.9.8.1735, Jumper 10.1038/s41586-021-03819-2,
Lin 10.1126/science.ade2574, Rives 10.1073/pnas.2016239118.
"""

import itertools
import math

import torch


def grid_positions(positions, table, text_length, rows, columns):
    """Rows of a table: one for a position of the text; after it the sum of one for its row and one for its column.

    Source: Ramesh et al. 2021, DALL-E, appendix B.1, figure 10
    Shapes: positions (B, T), table (text_length + rows + columns, D) -> (B, T, D)
    """
    text, by_row, by_column = table.split((text_length, rows, columns))

    def vector(place):
        if place < text_length:
            return text[place]
        place -= text_length
        return by_row[place // columns] + by_column[place % columns]

    return torch.stack([torch.stack([vector(int(place)) for place in line]) for line in positions])


def sinusoidal_table(length, dim):
    """Interleave sin and cos: even columns sin, odd columns cos of one angle per pair -> (length, dim) float64.

    Source: Vaswani et al. 2017, §3.5
    """
    rows = []
    for position in range(length):
        angles = [position / 10000.0 ** (2 * (column // 2) / dim) for column in range(dim)]
        rows.append([math.cos(angle) if column % 2 else math.sin(angle) for column, angle in enumerate(angles)])
    return torch.tensor(rows, dtype=torch.float64).reshape(length, dim)


def sinusoidal_concat_table(length, dim):
    """Hold the same numbers as `sinusoidal_table` with all sines first, then all cosines -> (length, dim) float64.

    Source: Vaswani et al. 2017, §3.5; layout of Marian in transformers (`MarianSinusoidalPositionalEmbedding`),
    https://github.com/huggingface/transformers/blob/main/src/transformers/models/marian/modeling_marian.py
    """
    interleaved = sinusoidal_table(length, dim)
    order = [column for column in range(dim) if column % 2 == 0] + [column for column in range(dim) if column % 2 == 1]
    return torch.stack([interleaved[:, column] for column in order], dim=1)


def sinusoidal_t2t_table(length, dim):
    """Tabulate sines, then cosines, of wavelengths from 2 pi to exactly 2 pi * 10000 -> (length, dim) float64.

    Source: Vaswani et al. 2018, Tensor2Tensor, `get_timing_signal_1d`
    """
    pairs, rows = dim // 2, []
    for position in range(length):
        angles = [position / 10000.0 ** (pair / max(pairs - 1, 1)) for pair in range(pairs)]
        rows.append([math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles])
    return torch.tensor(rows, dtype=torch.float64).reshape(length, dim)


def learned_positions(positions, table):
    """Look one row up per position: (B, T), (length, D) -> (B, T, D).

    Source: Gehring et al. 2017, §3.1; Devlin et al. 2019, §3, fig. 2
    """
    return torch.stack([torch.stack([table[int(position)] for position in row]) for row in positions])


def rope_frequencies(dim, theta):
    """Give each pair of components its turning speed theta^(-2i/dim) -> (dim/2,) float64.

    Source: Su et al. 2021, RoFormer, §3.2.2, eq. 15
    """
    return torch.tensor([theta ** (-2 * pair / dim) for pair in range(dim // 2)], dtype=torch.float64)


def rotate(vector, position, frequencies):
    """Turn pair (i, i + R/2) of the first R = 2 len(frequencies) components by position * frequency: (K,) -> (K,).

    Source: Su et al. 2021, RoFormer, §3.2.2, eq. 34; pairs i and i + R/2 (the paper's are 2i and 2i + 1) and partial
    rotation as in GPT-NeoX, Black et al. 2022, §2.1
    """
    half = len(frequencies)
    angles = float(position) * torch.as_tensor(frequencies, dtype=torch.float64)
    cosine, sine = (wave(angles).to(vector.dtype) for wave in (torch.cos, torch.sin))
    first, second, rest = vector[:half], vector[half : 2 * half], vector[2 * half :]
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine, rest])


def rotate_heads(heads, positions, frequencies):
    """Apply `rotate` to every vector: (B, H, T, K), positions (B, T) -> (B, H, T, K).

    Source: Su et al. 2021, RoFormer, §3.2.2, eq. 34
    """
    turned = [
        rotate(heads[b, h, t], positions[b, t], frequencies)
        for b in range(heads.shape[0])
        for h in range(heads.shape[1])
        for t in range(heads.shape[2])
    ]
    return torch.stack(turned).reshape(heads.shape)


def rotate_patches(heads, grid, frequencies):
    """Turn the first half of the pairs by 2 pi times the row of a patch, the second by its column: (B, H, T, K) -> same.

    Rows and columns lie between -1 and 1, each patch at its center; tokens before the patches stay as they are.
    Source: Siméoni et al. 2025, DINOv3, §3.2, and its code
    """
    turned, (rows, columns) = heads.clone(), grid
    for row in range(rows):
        for column in range(columns):
            token = heads.shape[2] - rows * columns + row * columns + column
            places = (2 * (row + 0.5) / rows - 1, 2 * (column + 0.5) / columns - 1)
            angles = torch.cat([2 * math.pi * place * frequencies for place in places])
            for b in range(heads.shape[0]):
                for h in range(heads.shape[1]):
                    turned[b, h, token] = rotate(heads[b, h, token], 1, angles)
    return turned


def xpos_scale(heads, positions, rotated, sign):
    """Scale pair i of each rotated vector at position n by ((2i/R + 0.4) / 1.4)^(n/512), keys (sign -1) by its inverse.

    (B, H, T, K), positions (B, T) -> (B, H, T, K); R = `rotated` of the K components lie as in `rotate`.
    Source: Sun et al. 2022, §2.2, algorithm 1; 512 as in its code, torchscale
    """
    scaled = torch.ones(heads.shape, dtype=heads.dtype)
    for b in range(heads.shape[0]):
        for t in range(heads.shape[2]):
            for component in range(rotated):
                pair = component % (rotated // 2)
                zeta = (2 * pair / rotated + 0.4) / 1.4
                scaled[b, :, t, component] = zeta ** (sign * float(positions[b % len(positions), t]) / 512)
    return heads * scaled


def alibi_slopes(heads):
    """Give head h of n the slope 2^(-8h/n); between powers of two, fill up with every second slope of the next power.

    Source: Press et al. 2022, ALiBi, §3; other head counts: `get_slopes` in
    https://github.com/ofirpress/attention_with_linear_biases/blob/master/fairseq/models/transformer.py
    """
    power = 2 ** int(math.log2(heads))
    slopes = [2.0 ** (-8.0 * head / power) for head in range(1, power + 1)]
    if power < heads:
        slopes += [2.0 ** (-8.0 * head / (2 * power)) for head in range(1, 2 * power + 1, 2)][: heads - power]
    return slopes


def alibi_bias(heads, query_positions, key_positions):
    """Subtract slope times distance from every score: (B, T), (B, S) -> (B, H, T, S) float64.

    Source: Press et al. 2022, ALiBi, §3; |distance|, so it serves encoders as well
    """
    rows = []
    for queries, keys in zip(query_positions.tolist(), key_positions.tolist(), strict=True):
        rows.append([[[-slope * abs(q - k) for k in keys] for q in queries] for slope in alibi_slopes(heads)])
    return torch.tensor(rows, dtype=torch.float64)


def t5_bucket(offset, bidirectional, buckets, max_distance):
    """Number the distance key - query: exact while small, then logarithmic up to max_distance, then all in one.

    Source: Raffel et al. 2020, T5, §2.1; `_relative_position_bucket` of
    https://github.com/tensorflow/mesh/blob/master/mesh_tensorflow/transformer/transformer_layers.py
    """
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if offset > 0 else 0
        distance = abs(offset)
    else:
        distance = max(-offset, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    octave = math.log(distance / exact) / math.log(max_distance / exact)
    return first + min(exact + int(octave * (buckets - exact)), buckets - 1)


def t5_bias(table, query_positions, key_positions, bidirectional, max_distance=128):
    """Add one learned number per bucket and head to the scores: (buckets, H), (B, T), (B, S) -> (B, H, T, S).

    Source: Raffel et al. 2020, T5, §2.1
    """
    buckets, heads = table.shape
    rows = []
    for queries, keys in zip(query_positions.tolist(), key_positions.tolist(), strict=True):
        for head in range(heads):
            for q in queries:
                for k in keys:
                    rows.append(table[t5_bucket(k - q, bidirectional, buckets, max_distance), head])
    return torch.stack(rows).reshape(len(query_positions), heads, query_positions.shape[1], key_positions.shape[1])


def kerple_bias(log_r1, log_r2, query_positions, key_positions):
    """Subtract r1 log(1 + r2 |i - j|) from every score: 2 x (H,), (B, T), (B, S) -> (B, H, T, S).

    r1 and r2 are the exponentials of what is learned, so that they are positive.
    Source: Chi et al. 2022, KERPLE, §4, the logarithmic kernel
    """
    rows = []
    for queries, keys in zip(query_positions.tolist(), key_positions.tolist(), strict=True):
        for r1, r2 in zip(log_r1.exp(), log_r2.exp(), strict=True):
            for q in queries:
                for k in keys:
                    rows.append(-r1 * torch.log(1 + r2 * abs(q - k)))
    return torch.stack(rows).reshape(len(query_positions), len(log_r1), -1, key_positions.shape[1])


def disentangled_bucket(distance, buckets, furthest):
    """Number the distance query - key: exact up to a quarter of the buckets, then logarithmic up to `furthest`.

    Source: He et al. 2021, DeBERTa, §3.1, eq. 3; `make_log_bucket_position` of https://github.com/microsoft/DeBERTa
    """
    side = buckets // 2
    exact = side // 2
    if abs(distance) > exact:
        octave = math.log(abs(distance) / exact) / math.log((furthest - 1) / exact)
        far = exact + math.ceil(octave * (exact - 1))
        distance = far if distance > 0 else -far
    return min(max(distance + side, 0), 2 * side - 1)


def disentangled_bias(q, k, query_vectors, key_vectors, query_positions, key_positions, furthest):
    """Score queries with the key vector of their distance, and keys with its query vector; None is no such score.

    Source: He et al. 2021, DeBERTa, §3.1, eq. 4; its code takes one distance for both
    Shapes: q (B, H, T, K), k (B, G, S, K), vectors (1, H, N, K) and (1, G, N, K), positions (B, T), (B, S) -> (B, H, T, S)
    """
    batch, heads, queries, _ = q.shape
    buckets = (key_vectors if query_vectors is None else query_vectors).shape[2]
    scores = []
    for b, h, t, s in itertools.product(range(batch), range(heads), range(queries), range(k.shape[2])):
        group = h // (heads // k.shape[1])
        distance = (query_positions[b, t] - key_positions[b, s]).item()
        number, score = disentangled_bucket(distance, buckets, furthest), q.new_zeros(())
        if key_vectors is not None:
            score = score + (q[b, h, t] * key_vectors[0, group, number]).sum()
        if query_vectors is not None:
            score = score + (k[b, group, s] * query_vectors[0, h, number]).sum()
        scores.append(score)
    return torch.stack(scores).reshape(batch, heads, queries, k.shape[2])


def full(query, key):
    """Let every query see every key. Source: Vaswani et al. 2017, §3.2.3"""
    return True


def causal(query, key):
    """Let a query see itself and what came before. Source: Vaswani et al. 2017, §3.2.3 (decoder)"""
    return key <= query


def sliding(query, key, window):
    """Let a query see keys nearer than `window` on either side; the window counts the token itself, as Mistral's does.

    Source: Beltagy et al. 2020, Longformer, §3.1; Jiang et al. 2023, Mistral 7B, §2
    """
    return abs(query - key) < window


def dilated(query, key, window, dilation):
    """Let a query see `window` keys on either side, itself counted, with gaps of `dilation` - 1 tokens between them.

    Source: Beltagy et al. 2020, Longformer, §3.1, figure 2 (c)
    """
    return any(abs(query - key) == step * dilation for step in range(window))


def strided(query, key, stride):
    """Let a query see the last `stride` tokens, and every `stride`-th; both ways where it may look ahead.

    Source: Child et al. 2019, Sparse Transformers, §4.3, A^(1) and A^(2) of the strided pattern, joined as in §5.1
    """
    first, last = min(query, key), max(query, key)
    return first in range(max(0, last - stride), last + 1) or (last - first) % stride == 0


def fixed(query, key, stride, columns):
    """Let a query see its own block, and the last `columns` tokens of every block.

    Source: Child et al. 2019, Sparse Transformers, §4.3, A^(1) and A^(2) of the fixed pattern, joined as in §5.1
    """
    return query // stride == key // stride or key % stride in range(stride - columns, stride)


def block_sparse(query, key, block_size):
    """Let a block see itself, its neighbours and block 0, and block 0 see everything: BigBird without random blocks.

    Source: Zaheer et al. 2020, BigBird, §2 and appendix D
    """
    query_block, key_block = query // block_size, key // block_size
    return abs(query_block - key_block) <= 1 or key_block == 0 or query_block == 0


def random(query, key, block_size, count, seed, causal):
    """Let blocks see what `block_sparse` does and `count` blocks more, drawn for each block of queries.

    Source: Zaheer et al. 2020, BigBird, §2 and appendix D
    """
    drawn = drawn_blocks(query // block_size, count, seed, causal)
    return block_sparse(query, key, block_size) or key // block_size in drawn


def drawn_blocks(block, count, seed, causal):
    """Draw one block from each of `count` parts of those that are not near and not the first.

    A block that may look ahead has as many to choose from behind it as before it, and `count` more.
    """
    before = list(range(1, block - 1))
    after = [] if causal else list(range(block + 2, block + 2 + len(before) + count))
    choices = before + after
    drawn = set()
    for index in range(count if choices else 0):
        part = choices[index * len(choices) // count : (index + 1) * len(choices) // count]
        share = scattered(scattered(seed + 977 * block) + index)
        drawn.add(part[share * len(part) // 2**31] if part else choices[index * len(choices) // count])
    return drawn


def scattered(number):
    """Give a whole number another of 31 bits.

    Source: Appleby 2011, MurmurHash3, https://github.com/aappleby/smhasher
    """
    number %= 2**31
    for shift, factor in ((16, 0x7FEB352D), (15, 0x46CA68BD)):
        number = (number ^ (number >> shift)) * factor % 2**31
    return number ^ (number >> 16)


def touches(query, key, chosen):
    """Let chosen tokens see all, and all see them. Source: Beltagy et al. 2020, Longformer, §3.1, figure 2 (d)"""
    return query in chosen or key in chosen


def row(query, key, text_length, columns):
    """Let a token of an image see the text and the image from the token above itself on, in the order of reading.

    Source: Ramesh et al. 2021, DALL-E, appendix B.1, figure 11 (a)
    """
    return min(query, key) < text_length or abs(query - key) <= columns


def column(query, key, text_length, columns):
    """Let a token of an image see the text and its own column.

    Source: Ramesh et al. 2021, appendix B.1, figure 11 (b)
    """
    if min(query, key) < text_length:
        return True
    return (query - text_length) % columns == (key - text_length) % columns


def convolutional(query, key, text_length, columns, kernel):
    """Let a token of an image see the text and a square window around itself, which wraps around the ends of rows.

    Source: Ramesh et al. 2021, appendix B.1, figure 11 (d)
    """
    offsets = range(-(kernel // 2), kernel // 2 + 1)
    inside = any(query - key == down * columns + right for down in offsets for right in offsets)
    return min(query, key) < text_length or inside


def visibility(*predicates, keep=None, positions=None, documents=None, first_query=0):
    """Intersect predicates (query, key) with padding `keep` and packing `documents`, all (B, S) -> visible(b, t, s).

    Predicates compare indices, or `positions` where given. `first_query` is the number of cached keys before query 0.
    Source: Vaswani et al. 2017, §3.2.3; packing: Krell et al. 2021, §3.2.2
    """

    def visible(b, t, s):
        query = t + first_query
        if keep is not None and not bool(keep[b, s]):
            return False
        if documents is not None and int(documents[b, query]) != int(documents[b, s]):
            return False
        pair = (query, s) if positions is None else (int(positions[b, query]), int(positions[b, s]))
        return all(predicate(*pair) for predicate in predicates)

    return visible


def softmax(scores):
    """Turn numbers into probabilities, exp(z_i) / sum_j exp(z_j): (N,) -> (N,). Source: Bridle 1990"""
    # The shift cancels in the quotient: it only keeps exp from overflowing.
    exponentials = torch.exp(scores - scores.detach().max())
    return exponentials / exponentials.sum()


def attention(q, k, v, scale=None, visible=None, bias=None, softcap=None, sinks=None):
    """Mix values by softmax(q·k * scale + bias) over the visible keys: -> (B, H, T, K), weights (B, H, T, S).

    With `softcap` a bound is approached before the bias: c·tanh(q·k * scale / c) (Gemma Team 2024, Gemma 2, §2).
    Query head h reads key-value head h // (H/G). A query that sees nothing gives zeros. A sink (H,) is the score of a
    key more, whose value is zero.
    Source: Vaswani et al. 2017, §3.2.1, eq. 1; groups: Ainslie et al. 2023, GQA, §2.2; sinks: OpenAI 2025, §2.2
    Shapes: q (B, H, T, K), k (B, G, S, K), v (B, G, S, K), bias (B or 1, H or 1, T, S), visible(b, t, s) -> bool
    """
    batch, heads, queries, head_dim = q.shape
    scale = 1.0 / math.sqrt(head_dim) if scale is None else scale
    bias = q.new_zeros(()) if bias is None else bias
    bias = bias.expand(batch, heads, queries, k.shape[2])
    outputs, weights = [], []
    for b, h, t in itertools.product(range(batch), range(heads), range(queries)):
        g = h // (heads // k.shape[1])
        seen = [s for s in range(k.shape[2]) if visible is None or visible(b, t, s)]
        row = q.new_zeros(k.shape[2])
        if seen:
            scores = soft_cap((k[b, g, seen] * q[b, h, t]).sum(-1) * scale, softcap) + bias[b, h, t, seen]
            scores = scores if sinks is None else torch.cat((scores, sinks[h : h + 1]))
            row = row.index_put((torch.tensor(seen),), softmax(scores)[: len(seen)])
        weights.append(row)
        outputs.append((row[:, None] * v[b, g]).sum(0))
    return (
        torch.stack(outputs).reshape(batch, heads, queries, v.shape[-1]),
        torch.stack(weights).reshape(batch, heads, queries, k.shape[2]),
    )


def soft_cap(scores, cap):
    """Let each score approach a bound, c·tanh(s/c), where there is one. Source: Gemma Team 2024, Gemma 2, §2"""
    return scores if cap is None else cap * tanh(scores / cap)


def elu_features(x):
    """elu(x) + 1: x + 1 above zero, exp(x) below: (N,) -> (N,). Source: Katharopoulos et al. 2020, §3.2.1, eq. 7"""
    return torch.stack([value + 1 if value > 0 else torch.exp(value) for value in x])


def relu_features(x):
    """max(x, 0): (N,) -> (N,). Source: Qin et al. 2022, cosFormer, §3.1, eq. 7"""
    return torch.stack([relu(value) for value in x])


FEATURE_MAPS = {"elu": elu_features, "relu": relu_features}


def linear_attention(q, k, v, feature_map, visible=None, rotate_query=None, rotate_key=None):
    """Mix values by products of features, divided by their sum over the visible keys; nothing in common gives zeros.

    Rotations act on the features, in the products that weigh values and not in those that normalise them.
    Source: Katharopoulos et al. 2020, §3.2, eq. 4; rotations: Su et al. 2021, RoFormer, §3.3, eq. 19
    Shapes: q (B, H, T, K), k (B, G, S, K), v (B, G, S, K) -> (B, H, T, K), weights (B, H, T, S)
    """
    batch, heads, queries, _ = q.shape
    keys = k.shape[2]
    features = [_each_vector(FEATURE_MAPS[feature_map], each) for each in (q, k)]
    rotations = (rotate_query, rotate_key)
    turned = [each if rotate is None else rotate(each) for each, rotate in zip(features, rotations, strict=True)]
    outputs, weights = [], []
    for b, h, t in itertools.product(range(batch), range(heads), range(queries)):
        g = h // (heads // k.shape[1])
        seen = [s for s in range(keys) if visible is None or visible(b, t, s)]
        normaliser = sum((features[0][b, h, t] * features[1][b, g, s]).sum() for s in seen)
        row = [q.new_zeros(())] * keys
        if normaliser > 0:
            for s in seen:
                row[s] = (turned[0][b, h, t] * turned[1][b, g, s]).sum() / normaliser
        weights.append(torch.stack(row))
        outputs.append(sum(weight * v[b, g, s] for s, weight in enumerate(row)))
    return (
        torch.stack(outputs).reshape(batch, heads, queries, v.shape[-1]),
        torch.stack(weights).reshape(batch, heads, queries, keys),
    )


def unit_length(x):
    """x / sqrt(sum of squares + 1e-6): (N,) -> (N,). Source: Yang et al. 2024, §3.2"""
    return x / torch.sqrt((x * x).sum() + 1e-6)


def gated_delta_rule(q, k, v, decay, rate, keep=None, documents=None):
    """Token by token: S = a S (I - b k k^T) + b v k^T, o = S q, from nothing at the first token of a document.

    Query head h reads the state of key-value head h // (H/G); padding leaves the state as it is.
    Source: Yang, Kautz & Hatamizadeh 2024, Gated Delta Networks, eq. 10
    Shapes: q (B, H, T, K), k and v (B, G, T, K), decay and rate (B, G, T) -> (B, H, T, K)
    """
    batch, heads, tokens, width = q.shape
    groups = k.shape[1]
    outputs = [[[None] * tokens for _ in range(heads)] for _ in range(batch)]
    for b, g in itertools.product(range(batch), range(groups)):
        state = q.new_zeros(v.shape[-1], width)
        for t in range(tokens):
            if t and documents is not None and int(documents[b, t]) != int(documents[b, t - 1]):
                state = torch.zeros_like(state)
            if keep is None or bool(keep[b, t]):
                key, value = k[b, g, t], v[b, g, t]
                erase = torch.eye(width, dtype=q.dtype) - rate[b, g, t] * torch.outer(key, key)
                state = decay[b, g, t] * (state @ erase) + rate[b, g, t] * torch.outer(value, key)
            for h in range(g * heads // groups, (g + 1) * heads // groups):
                outputs[b][h][t] = state @ q[b, h, t]
    return torch.stack([torch.stack([torch.stack(row) for row in rows]) for rows in outputs])


def multi_head_attention(
    x_q, x_kv, q_weight, q_bias, k_weight, k_bias, v_weight, v_bias, o_weight, o_bias, heads, kv_heads,
    *, scale=None, visible=None, bias=None, rotate_query=None, rotate_key=None, gate=None,
):  # fmt: skip
    """Project, split into heads, attend, concatenate, project: (B, T, D), (B, S, D) -> (B, T, D), weights (B, H, T, S).

    Weights lie as in `nn.Linear`, (out, in). `rotate_*` map projected heads (B, H, T, K) to the same shape (RoPE).
    `gate` is the linear map whose sigmoid scales what is concatenated.
    Source: Vaswani et al. 2017, §3.2.2; gate: Jumper et al. 2021, supplement, algorithm 7, lines 4 and 6
    """
    q = split_heads(linear(x_q, q_weight, q_bias), heads)
    k = split_heads(linear(x_kv, k_weight, k_bias), kv_heads)
    v = split_heads(linear(x_kv, v_weight, v_bias), kv_heads)
    q = q if rotate_query is None else rotate_query(q)
    k = k if rotate_key is None else rotate_key(k)
    mixed, weights = attention(q, k, v, scale, visible, bias)
    return linear(gate_values(merge_heads(mixed), x_q, gate), o_weight, o_bias), weights


def gate_values(values, x, gate):
    """Scale values by the sigmoid of a linear map (weight, bias) of x; without a map return them: (..., D) -> same."""
    return values if gate is None else values * sigmoid(linear(x, *gate))


def global_attention(
    x, local, own, output, heads, kv_heads, chosen, *, visible=None, keep=None, rotate=None, gate=None
):
    """Attend by Q_s, K_s, V_s where `visible` and to `chosen` tokens; rows of these by Q_g, K_g, V_g to all that `keep` has.

    `local` and `own` are the weights and biases of both sets of projections, `output` those of the map after them.
    Source: Beltagy et al. 2020, Longformer, §3.1, "Global Attention" and "Linear Projections for Global Attention"
    Shapes: x (B, T, D), chosen and keep (B, T), visible(b, t, s) -> (B, T, D), weights (B, H, T, T)
    """

    def real(b, t, s):
        return keep is None or bool(keep[b, s])

    def near(b, t, s):
        return real(b, t, s) and (visible is None or visible(b, t, s) or bool(chosen[b, s]))

    turns = {"rotate_query": rotate, "rotate_key": rotate, "gate": gate}
    rows, row_weights = multi_head_attention(x, x, *local, *output, heads, kv_heads, visible=near, **turns)
    global_rows, global_weights = multi_head_attention(x, x, *own, *output, heads, kv_heads, visible=real, **turns)
    mixed, weights = [], []
    for b, t in itertools.product(range(x.shape[0]), range(x.shape[1])):
        mixed.append(global_rows[b, t] if chosen[b, t] else rows[b, t])
        weights.append(global_weights[b, :, t] if chosen[b, t] else row_weights[b, :, t])
    return torch.stack(mixed).view_as(x), torch.stack(weights).view(*x.shape[:2], *weights[0].shape).transpose(1, 2)


def split_heads(x, heads):
    """Cut each vector into `heads` consecutive pieces: (B, T, H*K) -> (B, H, T, K).

    Source: Vaswani et al. 2017, §3.2.2
    """
    size = x.shape[-1] // heads
    return torch.stack([x[:, :, head * size : (head + 1) * size] for head in range(heads)], dim=1)


def merge_heads(x):
    """Concatenate the heads of each position: (B, H, T, K) -> (B, T, H*K). Source: Vaswani et al. 2017, §3.2.2"""
    return torch.cat([x[:, head] for head in range(x.shape[1])], dim=-1)


def _each_vector(function, x):
    """Apply a function to every last-axis vector: (..., I) -> (..., O). Source: none, notation only."""
    return torch.stack([function(vector) for vector in x.reshape(-1, x.shape[-1])]).reshape(*x.shape[:-1], -1)


def linear(x, weight, bias=None):
    """Multiply by a matrix stored (out, in) and add a bias: (..., I) -> (..., O).

    Source: Vaswani et al. 2017, §3.3, eq. 2 (transposed)
    """

    bias = 0 if bias is None else bias
    return _each_vector(lambda vector: (weight * vector).sum(-1) + bias, x)


def layer_norm(x, weight, bias, eps):
    """Shift and scale each vector to mean 0 and (biased) variance 1, then scale and shift per feature.

    Source: Ba et al. 2016, §3.1, eq. 3; eps inside the root as usual
    """

    def normalize(vector):
        mean = vector.sum() / len(vector)
        variance = ((vector - mean) ** 2).sum() / len(vector)
        scaled = (vector - mean) / torch.sqrt(variance + eps) * weight
        return scaled if bias is None else scaled + bias

    return _each_vector(normalize, x)


def rms_norm(x, weight, eps):
    """Divide each vector by its root mean square, then scale per feature. Source: Zhang & Sennrich 2019, §3, eq. 4"""

    return _each_vector(lambda vector: vector / torch.sqrt((vector**2).sum() / len(vector) + eps) * weight, x)


def residual_pre_norm(x, branch, norm):
    """Normalise what enters the branch: x + f(norm(x)). Source: Xiong et al. 2020, §3.1, table 1"""
    return x + branch(norm(x))


def residual_post_norm(x, branch, norm):
    """Normalise what leaves the sum: norm(x + f(x)). Source: Vaswani et al. 2017, §3.1"""
    return norm(x + branch(x))


def residual_norm_inside(x, branch, norm):
    """Normalise the output of the branch: x + norm(f(x)). Source: Liu et al. 2021, Swin Transformer V2, §3.2"""
    return x + norm(branch(x))


def residual_sandwich(x, branch, norm, post_norm):
    """Normalise input and output of the branch: x + post(f(norm(x))). Source: Ding et al. 2021, CogView, §2.4"""
    return x + post_norm(branch(norm(x)))


def norm_each_head(heads, norm, gains):
    """Normalise each head without parameters, then scale by its own gains: (B, H, T, K), (H, K) -> (B, H, T, K).

    Source: Dehghani et al. 2023, ViT-22B, §2, eq. 2
    """
    plain = torch.ones(heads.shape[-1], dtype=heads.dtype)
    rows = [[norm(head, plain) * gain for head, gain in zip(row, gains, strict=True)] for row in heads]
    return torch.stack([torch.stack(row) for row in rows])


def norm_width(heads, norm):
    """Normalise all heads of a token as one vector: (B, H, T, K) -> same. Source: OLMo Team 2024, OLMo 2, §2.2"""
    return split_heads(norm(merge_heads(heads)), heads.shape[1])


def layer_scale(x, gains):
    """Scale a branch per feature: (B, T, D), (D,) -> (B, T, D). Source: Touvron et al. 2021, CaiT, §2, eq. 4"""
    return _each_vector(lambda vector: vector * gains, x)


def relu(x):
    """Keep the positive part, max(0, x). Source: Vaswani et al. 2017, §3.3, eq. 2"""
    return torch.where(x > 0, x, 0 * x)


def relu2(x):
    """Square the positive part, max(0, x)². Source: So et al. 2021, Primer, §4"""
    return relu(x) * relu(x)


def xielu(x, alpha_p, alpha_n, beta, eps):
    """Bend both sides, quadratic above 0: α₊x² + βx, and α₋(e^min(x, ε) - 1 - x) + βx, with softplus of what is learned.

    Source: Huang & Schlag 2024, Deriving Activation Functions Using Integration, eq. 5, and its code for ε and softplus
    """
    positive = torch.log(1 + torch.exp(alpha_p))
    negative = beta + torch.log(1 + torch.exp(alpha_n))
    below = negative * (torch.exp(torch.where(x < eps, x, eps + 0 * x)) - 1 - x) + beta * x
    return torch.where(x > 0, positive * x * x + beta * x, below)


def gelu(x):
    """Weigh x by the normal distribution function, x Φ(x). Source: Hendrycks & Gimpel 2016, §2"""
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def gelu_new(x):
    """Approximate GELU by tanh: GPT-2's activation. Source: Hendrycks & Gimpel 2016, §2"""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def silu(x):
    """Weigh x by its logistic, x σ(x). Source: Elfwing et al. 2017, §2"""
    return x / (1.0 + torch.exp(-x))


def tanh(x):
    """Squash to (-1, 1), (e^x - e^-x) / (e^x + e^-x): the pooler's activation.

    Source: LeCun et al. 1998, Efficient BackProp, §4.4, http://yann.lecun.com/exdb/publis/pdf/lecun-98b.pdf
    """
    return 2.0 * sigmoid(2.0 * x) - 1.0


def sigmoid(x):
    """Squash to (0, 1), 1 / (1 + e^-x).

    Source: LeCun et al. 1998, Efficient BackProp, §4.4, http://yann.lecun.com/exdb/publis/pdf/lecun-98b.pdf
    """
    return 1.0 / (1.0 + torch.exp(-x))


# Hendrycks & Gimpel 2016, §2, with √(2/π) as published checkpoints have it, cut to ten digits and (BLOOM) to eight, and its
# approximation by a logistic (CLIP).
ACTIVATIONS = {
    "relu": relu,
    "relu2": relu2,
    "gelu": gelu,
    "gelu_new": gelu_new,
    "gelu_fast": lambda x: 0.5 * x * (1.0 + torch.tanh(0.7978845608 * x * (1.0 + 0.044715 * x * x))),
    "gelu_pytorch_tanh": gelu_new,
    "gelu_bloom": lambda x: 0.5 * x * (1.0 + torch.tanh(0.79788456 * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x / (1.0 + torch.exp(-1.702 * x)),
    "silu": silu,
    "tanh": tanh,
    "sigmoid": sigmoid,
}


def mlp(x, up, up_bias, down, down_bias, activation):
    """Widen, activate, narrow: (..., D) -> (..., D) with up (F, D), down (D, F).

    Source: Vaswani et al. 2017, §3.3, eq. 2
    """
    return linear(activation(linear(x, up, up_bias)), down, down_bias)


def glu(x, gate, gate_bias, up, up_bias, down, down_bias, activation):
    """Widen twice, let one half gate the other, narrow: (..., D) -> (..., D). Source: Shazeer 2020, §2, eq. 6"""
    return linear(activation(linear(x, gate, gate_bias)) * linear(x, up, up_bias), down, down_bias)


def router_scores(x, weight, bias, score):
    """Score every expert for one token: (D,), weight (E, D), bias (E,) or None -> logits (E,), scores (E,).

    Source: Jiang et al. 2024, Mixtral, §2.1 (softmax); DeepSeek-AI 2024, DeepSeek-V3, §2.1.2, eq. 15 (sigmoid)
    """
    logits = torch.stack([(row * x).sum() for row in weight])
    logits = logits if bias is None else logits + bias
    if score == "sigmoid":
        return logits, torch.stack([1 / (1 + torch.exp(-each)) for each in logits])
    exponentials = [torch.exp(each) for each in logits]
    return logits, torch.stack([each / sum(exponentials) for each in exponentials])


def chosen_experts(scores, correction, count, groups=1, kept=1):
    """List the experts of a token: those of largest score + correction, in the groups of largest two best.

    Source: DeepSeek-AI 2024, DeepSeek-V3, §2.1.2, eq. 16 (bias), and §2.1.2, node-limited routing (groups)
    """
    seen = [score.item() + bias.item() for score, bias in zip(scores, correction, strict=True)]
    size = len(seen) // groups
    members = [range(group * size, (group + 1) * size) for group in range(groups)]
    if kept < groups:
        members.sort(key=lambda group: -sum(sorted((seen[expert] for expert in group), reverse=True)[:2]))
    allowed = [expert for group in members[:kept] for expert in group]
    return sorted(allowed, key=lambda expert: -seen[expert])[:count]


def limited_swiglu(gate, up, alpha, limit):
    """Gate by min(g, limit) * sigmoid(alpha g) what is kept within the limit, plus 1: (F,), (F,) -> (F,).

    Source: OpenAI 2025, gpt-oss model card, §2.2
    """
    units = []
    for one, other in zip(gate, up, strict=True):
        one = torch.minimum(one, torch.full_like(one, limit))
        other = torch.maximum(torch.minimum(other, torch.full_like(other, limit)), torch.full_like(other, -limit))
        units.append(one / (1 + torch.exp(-alpha * one)) * (other + 1))
    return torch.stack(units)


def mixture_of_experts(x, weights, experts, activation):
    """Sum the experts of each token by weight: rows (N, D), weights one dict {expert: weight} a row -> (N, D).

    `experts` are (gate, gate_bias, up, up_bias, down, down_bias); `activation` takes gate and up.
    Source: Shazeer et al. 2017, §2, eq. 1; Jiang et al. 2024, Mixtral, §2.1
    """
    rows = []
    for row, own in zip(x, weights, strict=True):
        total = torch.zeros_like(row)
        for expert, weight in own.items():
            gate, gate_bias, up, up_bias, down, down_bias = experts[expert]
            inner = activation(linear(row, gate, gate_bias), linear(row, up, up_bias))
            total = total + weight * linear(inner, down, down_bias)
        rows.append(total)
    return torch.stack(rows)


def load_balancing_loss(logits, chosen):
    """E times the sum over experts of the share of tokens that chose it, times its mean probability, of all layers.

    Source: Fedus et al. 2022, Switch Transformers, §2.2, eqs. 4 to 6
    Shapes: logits a list of (E,) of the real tokens of all layers, chosen a list of experts of each -> ()
    """
    count = len(logits[0])
    probabilities = [each.exp() / each.exp().sum() for each in logits]
    total = 0.0
    for expert in range(count):
        load = sum(experts.count(expert) for experts in chosen) / len(logits)
        total = total + load * sum(each[expert] for each in probabilities) / len(logits)
    return count * total


def router_z_loss(logits):
    """Mean square of log(sum(exp(logits))). Source: Zoph et al. 2022, ST-MoE, §3.1, eq. 5"""
    return sum(each.exp().sum().log() ** 2 for each in logits) / len(logits)


def token_embeddings(input_ids, table, scale=1.0, token_types=None, type_table=None):
    """Look up and scale token vectors, add those of their segment: (B, T) -> (B, T, D).

    Source: Vaswani et al. 2017, §3.4 (scale √D); Devlin et al. 2019, §3, fig. 2 (segments)
    """
    vectors = learned_positions(input_ids, table) * scale
    return vectors if type_table is None else vectors + learned_positions(token_types, type_table)


def shift_right(labels, start_token, pad_token, ignore_index=-100):
    """Feed the decoder the target one step late, beginning with a start token: (B, T) -> (B, T).

    Source: Vaswani et al. 2017, §3.1 (output embeddings offset by one)
    """
    rows = [[start_token, *row[:-1]] for row in labels.tolist()]
    return torch.tensor([[pad_token if token == ignore_index else token for token in row] for row in rows])


def patches(image, patch):
    """Cut an image into squares, row by row, each flattened (C, p, p) like a Conv2d weight: (C, H, W) -> (N, C*p*p).

    Source: Dosovitskiy et al. 2021, ViT, §3.1
    """
    channels, height, width = image.shape
    rows = []
    for top in range(0, height - patch + 1, patch):
        for left in range(0, width - patch + 1, patch):
            lines = [image[c, top + y, left : left + patch] for c in range(channels) for y in range(patch)]
            rows.append(torch.cat(lines))
    return torch.stack(rows)


def patch_embeddings(pixels, weight, bias):
    """Project every patch linearly: (B, C, H, W), Conv2d weight (D, C, p, p) -> (B, N, D).

    Source: Dosovitskiy et al. 2021, ViT, §3.1, eq. 1
    """
    flat = torch.stack([torch.cat([plane.reshape(-1) for plane in kernel]) for kernel in weight])
    return torch.stack([linear(patches(image, weight.shape[-1]), flat, bias) for image in pixels])


def mean_pool(hidden, keep):
    """Average the kept positions; a row without any gives zeros: (B, T, D), (B, T) -> (B, D).

    Source: Reimers & Gurevych 2019, Sentence-BERT, §3
    """
    rows = []
    for vectors, kept in zip(hidden, keep, strict=True):
        chosen = [vector for vector, wanted in zip(vectors, kept, strict=True) if bool(wanted)]
        rows.append(sum(chosen, 0 * vectors[0]) / max(len(chosen), 1))
    return torch.stack(rows)


def log_softmax(logits):
    """Subtract the log of the summed exponentials: (V,) -> (V,).

    Source: Bridle 1990; the shift by the largest logit cancels
    """
    shifted = logits - logits.detach().max()
    return shifted - torch.log(torch.exp(shifted).sum())


def cross_entropy(logits, labels, ignore_index=-100, label_smoothing=0.0, count=None):
    """Sum -Σ_v p_v log softmax(z)_v, p = (1-ε) one-hot + ε/V, over the counted rows; divide by `count` or their number.

    No counted row gives zero.
    Source: Szegedy et al. 2016, §7
    Shapes: logits (..., V), labels (...)
    """
    total, rows = 0 * logits.sum(), 0
    for row, label in zip(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1).tolist(), strict=True):
        if label == ignore_index:
            continue
        log_probabilities = log_softmax(row)
        uniform = log_probabilities.sum() / len(log_probabilities)
        total = total - (1 - label_smoothing) * log_probabilities[label] - label_smoothing * uniform
        rows += 1
    return total / (max(rows, 1) if count is None else count)


def next_token_loss(logits, labels, ignore_index=-100, label_smoothing=0.0, count=None):
    """Score position t against the token at t + 1; the last position predicts nothing: (B, T, V), (B, T) -> scalar.

    Source: Radford et al. 2018, GPT, §3.1, eq. 1, https://cdn.openai.com/research-covers/language-
    unsupervised/language_understanding_paper.pdf
    """
    return cross_entropy(logits[:, :-1], labels[:, 1:], ignore_index, label_smoothing, count)


def binary_cross_entropy(logits, targets, count=None):
    """Sum -[y log σ(z) + (1-y) log(1-σ(z))] over all labels, divide by `count` or the number of labels.

    Source: Bishop 2006, Pattern Recognition and Machine Learning, §4.3.2, eq. 4.90
    """
    # log(1 + e^-|z|) is log σ without overflow on either side.
    total = (relu(logits) - logits * targets + torch.log1p(torch.exp(-abs(logits)))).sum()
    return total / (logits.numel() if count is None else count)


def replaced_token_loss(logits, labels, keep):
    """Average over real tokens of the log-loss of "this token was replaced": (B, T) three times -> scalar.

    Source: Clark et al. 2020, ELECTRA, §2
    """
    losses = []
    for scores, truths, real in zip(logits, labels, keep, strict=True):
        for score, truth, counts in zip(scores, truths, real, strict=True):
            if bool(counts) and int(truth) != -100:
                probability = 1 / (1 + torch.exp(-score))
                losses.append(-torch.log(probability if int(truth) else 1 - probability))
    return sum(losses) / len(losses)


def token_dropout(vectors, input_ids, mask_token, keep):
    """Zero what is masked, and scale each row as if 12% of its real tokens were: (B, T, D), (B, T), (B, T) -> (B, T, D).

    Source: Rives et al. 2021, ESM-1b, supplement; the code of ESM
    """
    rows = []
    for row, ids, real in zip(vectors, input_ids.tolist(), keep.tolist(), strict=True):
        observed = sum(number == mask_token for number, kept in zip(ids, real, strict=True) if kept) / sum(real)
        scale = (1 - 0.15 * 0.8) / (1 - observed)
        rows.append(torch.stack([0 * x if n == mask_token else scale * x for n, x in zip(ids, row, strict=True)]))
    return torch.stack(rows)


def average_product_corrected(matrix):
    """Subtract what the sums of row and column let expect: (T, T) -> (T, T). Source: Dunn et al. 2008, APC"""
    size = len(matrix)
    rows = [sum(matrix[i][j] for j in range(size)) for i in range(size)]
    columns = [sum(matrix[i][j] for i in range(size)) for j in range(size)]
    return [[matrix[i][j] - rows[i] * columns[j] / sum(rows) for j in range(size)] for i in range(size)]


def attention_contacts(maps, weights, bias):
    """Score contacts of one row by logistic regression on its maps: (N, L, L), (N,), scalar -> (L, L).

    Source: Rao et al. 2021, Transformer protein language models are unsupervised structure learners
    """
    size = maps.shape[-1]
    both = [[[one[i, j] + one[j, i] for j in range(size)] for i in range(size)] for one in maps]
    corrected = [average_product_corrected(matrix) for matrix in both]
    scores = [
        [sum(w * matrix[i][j] for w, matrix in zip(weights, corrected, strict=True)) + bias for j in range(size)]
        for i in range(size)
    ]
    return torch.stack([torch.stack(row) for row in scores])


def mean_squared_error(predictions, targets, count=None):
    """Sum the squared differences, divide by `count` or their number.

    Source: Bishop 2006, Pattern Recognition and Machine Learning, §3.1.1, eq. 3.12
    """
    return ((predictions - targets) ** 2).sum() / (predictions.numel() if count is None else count)


def span_loss(start_logits, end_logits, starts, ends, label_smoothing=0.0, count=None):
    """Average the cross-entropies of a span's first and last position; positions outside the text do not count.

    Source: Devlin et al. 2019, BERT, §4.2
    Shapes: logits (B, S), starts and ends (B,)
    """
    losses = []
    for logits, positions in ((start_logits, starts), (end_logits, ends)):
        inside = [place if 0 <= place < logits.shape[-1] else -100 for place in positions.tolist()]
        losses.append(cross_entropy(logits, torch.tensor(inside), -100, label_smoothing, count))
    return (losses[0] + losses[1]) / 2


def masked_pixel_loss(pixels, predicted, masked, patch):
    """Average |difference| over all values of the masked patches: (B, C, H, W) twice, masked (B, N) -> scalar.

    Source: Xie et al. 2022, SimMIM, §3.4
    """
    total, values = 0 * predicted.sum(), 0
    for image, guess, row in zip(pixels, predicted, masked, strict=True):
        for true, guessed, hidden in zip(patches(image, patch), patches(guess, patch), row, strict=True):
            if bool(hidden):
                total, values = total + abs(true - guessed).sum(), values + len(true)
    return total / max(values, 1)


def gru_step(x, state, input_weight, state_weight, input_bias, state_bias):
    """Reset, keep and propose, gate by gate: (I,), (D,) -> (D,); rows of the weights are reset, update, proposal.

    As every fused kernel has it: the reset gate acts on U h + b, in eq. 7 of the paper on h.
    Source: Cho et al. 2014, §2.3, eq. 5-8
    """
    size = len(state)
    given = linear(x, input_weight, input_bias).split(size)
    kept = linear(state, state_weight, state_bias).split(size)
    reset, update = (sigmoid(given[gate] + kept[gate]) for gate in (0, 1))
    proposal = tanh(given[2] + reset * kept[2])
    return (1 - update) * proposal + update * state


def lstm_step(x, state, memory, input_weight, state_weight, input_bias, state_bias):
    """Write, erase, propose and read: (I,), 2 x (D,) -> 2 x (D,); rows are input, forget, proposal, output.

    Source: Hochreiter & Schmidhuber 1997, §4; forget gate: Gers et al. 2000
    """
    sums = linear(x, input_weight, input_bias) + linear(state, state_weight, state_bias)
    write, forget, proposal, read = sums.split(len(state))
    memory = sigmoid(forget) * memory + sigmoid(write) * tanh(proposal)
    return sigmoid(read) * tanh(memory), memory


def additive_scores(state, memory, query_weight, key_weight, key_bias, vector):
    """Score each source by v · tanh(W s + U h + b): (D,), (S, M) -> (S,).

    Source: Bahdanau et al. 2015, appendix A.1.2
    """
    query = linear(state, query_weight)
    return torch.stack([(vector * tanh(query + linear(source, key_weight, key_bias))).sum() for source in memory])


def weighted_context(scores, memory):
    """Average memory by the softmax of scores: (S,), (S, M) -> (M,), (S,).

    Source: Bahdanau et al. 2015, §3.1, eq. 5-6
    """
    weights = softmax(scores)
    return sum(weight * source for weight, source in zip(weights, memory, strict=True)), weights


def maxout(x, weight, bias):
    """Keep the larger of each two neighbouring linear maps: (I,), (2 P, I) -> (P,).

    Source: Bahdanau et al. 2015, appendix A.2.2
    """
    maps = linear(x, weight, bias)
    return torch.maximum(maps[0::2], maps[1::2])


def contrastive(images, texts, scale, count=None):
    """Each pair, twice: -log of the share that its own score has among the image's, and among the text's."""
    pairs = range(len(images))
    total = images.new_zeros(())
    for own in pairs:
        for scores in (scale * linear(images[own], texts), scale * linear(texts[own], images)):
            total = total - torch.log(softmax(scores)[own]) / 2
    return total / (count or len(images))


def sigmoid_contrastive(images, texts, scale, bias, count=None):
    """Each image with each text, by itself: -log of a sigmoid of the score, or of minus it where they are no pair.

    Source: Zhai et al. 2023, SigLIP, §3.2, eq. 2
    """
    total = images.new_zeros(())
    for own, image in enumerate(images):
        for other, text in enumerate(texts):
            score = scale * (image * text).sum() + bias
            total = total + torch.log(1 + torch.exp(-score if own == other else score))
    return total / (count or len(images))


def hidden_frames(length, size, share, width, least, chance, draws):
    """Hide stretches of `width` frames that begin where the least numbers were drawn: booleans (size,).

    As many as hide a `share` of the sound if none overlap, a fraction of one by chance, and at least so many.
    Source: Park et al. 2019, SpecAugment, §2, of a number of masks that grows with the sound: Park et al. 2020,
    SpecAugment on Large Scale Datasets
    """
    count = max(least, math.floor(share * length / width + chance))
    beginnings = sorted(range(length - width + 1), key=lambda place: draws[place])
    hidden = [False] * size
    for begin in beginnings[:count]:
        for frame in range(begin, begin + width):
            hidden[frame] = True
    return torch.tensor(hidden)


def frame_convolution(frames, weight, bias, stride):
    """Weigh each `stride`-th frame and its neighbours, zero beyond the ends: (C, L) -> (filters, T).

    Source: LeCun et al. 1989, Backpropagation Applied to Handwritten Zip Code Recognition, in one dimension
    """
    size, columns = weight.shape[-1], []
    for middle in range(0, frames.shape[1], stride):
        places = [(tap, middle + tap - size // 2) for tap in range(size)]
        inside = [(tap, frame) for tap, frame in places if 0 <= frame < frames.shape[1]]
        columns.append(bias + sum(linear(frames[:, frame], weight[:, :, tap]) for tap, frame in inside))
    return torch.stack(columns, dim=1)


def gated(value):
    """Half of the filters times the sigmoid of the others: (2C, T) -> (C, T). Source: Dauphin et al. 2017, §2"""
    half = value.shape[0] // 2
    return value[:half] / (1 + torch.exp(-value[half:]))


def alignments(words, length, blank):
    """Every row of `length` labels that reads as these words once repeats and then blanks are struck out.

    Source: Graves et al. 2006, §3, Connectionist Temporal Classification
    """
    alphabet = sorted({*words, blank})
    found = []
    for number in range(len(alphabet) ** length):
        path = [alphabet[number // len(alphabet) ** place % len(alphabet)] for place in range(length)]
        struck = [label for place, label in enumerate(path) if place == 0 or path[place - 1] != label]
        if [label for label in struck if label != blank] == list(words):
            found.append(path)
    return found


def ctc_loss(scores, words, blank):
    """-log of the summed probabilities of all alignments of the words to the moments: scores (T, V) -> ().

    Source: Graves et al. 2006, eq. 3, Connectionist Temporal Classification
    """
    likelihoods = torch.log(torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True))
    total = scores.new_zeros(())
    for path in alignments(words, len(scores), blank):
        total = total + torch.exp(sum(likelihoods[moment, label] for moment, label in enumerate(path)))
    return -torch.log(total)


# Detection ------------------------------------------------------------------------------------------------------------


def image_positions(keep, dim):
    """Place each pixel of a map by its row and its column, as parts of 2 pi: (rows, columns) -> (rows * columns, D).

    Only real pixels are counted.
    Source: Carion et al. 2020, DETR, appendix A.4, and its `position_encoding.py`
    """
    rows, columns = keep.shape
    places = []
    for row in range(rows):
        for column in range(columns):
            vector = []
            for line, place in ((keep[:, column], row), (keep[row], column)):
                share = sum(line[: place + 1].tolist()) / (sum(line.tolist()) + 1e-6)
                for component in range(dim // 2):
                    angle = 2 * math.pi * share / 10000.0 ** (2 * (component // 2) / (dim // 2))
                    vector.append(math.cos(angle) if component % 2 else math.sin(angle))
            places.append(torch.tensor(vector, dtype=torch.float64))
    return torch.stack(places)


def generalized_iou(box, other):
    """Measure the overlap of two boxes (center x, center y, width, height), from -1 to 1: (4,), (4,) -> scalar.

    Source: Rezatofighi et al. 2019, algorithm 1
    """
    sides, hull, areas = [], [], []
    for axis in (0, 1):
        low, high = box[axis] - box[axis + 2] / 2, box[axis] + box[axis + 2] / 2
        other_low, other_high = other[axis] - other[axis + 2] / 2, other[axis] + other[axis + 2] / 2
        sides.append(torch.clamp(torch.minimum(high, other_high) - torch.maximum(low, other_low), min=0))
        hull.append(torch.maximum(high, other_high) - torch.minimum(low, other_low))
    areas = [each[2] * each[3] for each in (box, other)]
    shared, around = sides[0] * sides[1], hull[0] * hull[1]
    union = areas[0] + areas[1] - shared
    return shared / union - (around - union) / around


def attention_entropy(weights):
    """Entropy of a query's attention in bits, key by key: (T, S) -> (T,).

    Source: Clark et al. 2019, What Does BERT Look At?, §3.3
    """
    zero = weights.new_zeros(())
    return torch.stack([sum((-value * torch.log2(value) for value in row if value > 0), zero) for row in weights])


def attention_distance(weights, places):
    """Mean distance of a query to the keys that it attends to: (T, T), T places -> (T,).

    Source: Dosovitskiy et al. 2021, appendix D.7
    """
    means = []
    for own, row in zip(places, weights, strict=True):
        total = sum(value * math.dist(own, other) for other, value in zip(places, row, strict=True))
        means.append(total / sum(row))
    return torch.stack(means)


def prefix_matching(weights, tokens):
    """Mean attention to the tokens after earlier occurrences of each repeated token: (T, T), (T,) -> ().

    Only tokens that stood there once before count, which are those of a repetition where the first half has each once.
    Source: Olsson et al. 2022, In-context Learning and Induction Heads
    """
    matched = []
    for place, token in enumerate(tokens):
        earlier = [other for other in range(place) if tokens[other] == token]
        if len(earlier) == 1:
            matched.append(weights[place, earlier[0] + 1])
    return sum(matched) / len(matched)


def triangle_multiplication(first, second, real, *, incoming):
    """Sum a_ik b_jk over real residues k, or a_ki b_kj: 2 x (L, L, C), real (L,) -> (L, L, C).

    Source: Jumper et al. 2021, supplement, algorithm 11, line 4, and 12, line 4
    """
    length, rows = len(first), []
    for i, j in itertools.product(range(length), repeat=2):
        edges = [(first[k, i], second[k, j]) if incoming else (first[i, k], second[j, k]) for k in range(length)]
        kept = [a * b for k, (a, b) in enumerate(edges) if real[i] and real[j] and real[k]]
        rows.append(sum(kept, first.new_zeros(first.shape[-1])))
    return torch.stack(rows).view(length, length, -1)


def triangle_attention(query, key, value, bias, real, *, ending):
    """Let pair (i, j) read pairs (i, k) by softmax(q_ij k_ik / sqrt(K) + b_jk), or (k, j) by q_ij k_kj and b_ki.

    Source: Jumper et al. 2021, supplement, algorithm 13, lines 5 and 6, and 14, lines 5 and 6
    Shapes: query, key and value of one head (L, L, K), bias (L, L), real (L,) -> (L, L, K)
    """
    length, rows = len(query), []
    for i, j in itertools.product(range(length), repeat=2):
        others = [k for k in range(length) if real[k]]
        read = [(k, j) if ending else (i, k) for k in others]
        added = torch.stack([bias[k, i] if ending else bias[j, k] for k in others])
        scores = torch.stack([(query[i, j] * key[pair]).sum() for pair in read]) / math.sqrt(query.shape[-1])
        rows.append(sum(weight * value[pair] for weight, pair in zip(softmax(scores + added), read, strict=True)))
    return torch.stack(rows).view(length, length, -1)


def outer_product_mean(first, second, real):
    """Average the outer products a_si b_sj^T over the sequences s of an alignment, row by row: -> (L, L, c * c).

    Source: Jumper et al. 2021, supplement, algorithm 10, line 3
    Shapes: 2 x (S, L, c), real (S,)
    """
    sequences = [s for s in range(len(first)) if real[s]]
    length, rows = first.shape[1], []
    for i, j in itertools.product(range(length), repeat=2):
        products = [torch.stack([x * y for x in first[s, i] for y in second[s, j]]) for s in sequences]
        rows.append(sum(products) / len(products))
    return torch.stack(rows).view(length, length, -1)


def outer_product_difference(first, second):
    """Products and differences of the components of residues j and i: a_j b_i and a_j - b_i, (L, c) -> (L, L, 2 c).

    Source: Lin et al. 2023, ESMFold's code, `SequenceToPair`
    """
    rows = [torch.cat((a * b, a - b)) for b in second for a in first]
    return torch.stack(rows).view(len(first), len(first), -1)


def relative_positions(positions, bins):
    """Number the differences p_j - p_i from 1, those of `bins` and more alike: (L,) -> L lists of L numbers.

    Source: Jumper et al. 2021, supplement, algorithms 4 and 5
    """
    return [[min(max(int(q - p), -bins), bins) + bins + 1 for q in positions] for p in positions]


def frame_of(nitrogen, alpha, carbon):
    """Rotation and translation of the frame that three atoms span: 3 x (3,) -> (3, 3), (3,).

    Source: Jumper et al. 2021, supplement, algorithm 21
    """
    first = (carbon - alpha) / (carbon - alpha).pow(2).sum().sqrt()
    second = (nitrogen - alpha) - first * (first * (nitrogen - alpha)).sum()
    second = second / second.pow(2).sum().sqrt()
    (a, b, c), (d, e, f) = first, second
    third = torch.stack([b * f - c * e, c * d - a * f, a * e - b * d])
    return torch.stack([first, second, third], dim=1), alpha


def seen_from(rotation, shift, point):
    """A point in the coordinates of a frame: R^T (x - t)."""
    moved = point - shift
    return torch.stack([sum(rotation[k, i] * moved[k] for k in range(3)) for i in range(3)])


def frame_aligned_point_error(rotations, shifts, points, true_rotations, true_shifts, true_points, due):
    """Mean over due pairs of frame i and point j of min(10, sqrt(|d_ij|^2 + 1e-4)) / 10.

    Source: Jumper et al. 2021, supplement, algorithm 28
    """
    errors = []
    for i, j in itertools.product(range(len(rotations)), range(len(points))):
        if due[i, j]:
            there = seen_from(true_rotations[i], true_shifts[i], true_points[j])
            square = (seen_from(rotations[i], shifts[i], points[j]) - there).pow(2).sum()
            errors.append((square + 1e-4).sqrt().clamp(max=10) / 10)
    return sum(errors) / len(errors)


def invariant_point_attention(
    query, key, value, query_points, key_points, value_points, bias, pair, rotations, shifts, weight, real
):
    """One head: values, points seen by the reader, their norms, and pairs, each read by the same weights.

    Source: Jumper et al. 2021, supplement, algorithm 22, with 1e-8 in the norm
    Shapes: (L, K), (L, K), (L, V), 3 x (L, P, 3), (L, L), (L, L, C), (L, 3, 3), (L, 3), (), (L,)
    """
    places = [[[rotations[i] @ point + shifts[i] for point in row] for i, row in enumerate(each)]
              for each in (query_points, key_points, value_points)]  # fmt: skip
    count, rows = len(query_points[0]), []
    others = [j for j in range(len(query)) if real[j]]
    for i in range(len(query)):
        scores = []
        for j in others:
            squares = sum((q - k).pow(2).sum() for q, k in zip(places[0][i], places[1][j], strict=True))
            content = (query[i] * key[j]).sum() / math.sqrt(query.shape[-1]) + bias[i, j]
            scores.append((content - weight * math.sqrt(2 / (9 * count)) / 2 * squares) / math.sqrt(3))
        shares = softmax(torch.stack(scores))
        read = [sum(share * places[2][j][p] for share, j in zip(shares, others, strict=True))
                for p in range(len(value_points[0]))]  # fmt: skip
        near = torch.stack([seen_from(rotations[i], shifts[i], point) for point in read])
        own = [sum(share * each for share, each in zip(shares, rows_of, strict=True))
               for rows_of in ([value[j] for j in others], [pair[i, j] for j in others])]  # fmt: skip
        rows.append((own[0], near, (near.pow(2).sum(-1) + 1e-8).sqrt(), own[1]))
    return [torch.stack(each) for each in zip(*rows, strict=True)]


def local_distance_test(points, true_points, known):
    """Share of distances below 15 to known others that are right within 0.5, 1, 2 and 4: 2 x (L, 3) -> L numbers.

    Source: Jumper et al. 2021, supplement, §1.9.6
    """
    scores = []
    for i in range(len(points)):
        hits = []
        for j in range(len(points)):
            true = (true_points[i] - true_points[j]).pow(2).sum().sqrt()
            if i != j and known[i] and known[j] and true < 15:
                error = abs((points[i] - points[j]).pow(2).sum().sqrt() - true)
                hits += [float(error < limit) for limit in (0.5, 1, 2, 4)]
        scores.append(sum(hits) / max(len(hits), 1))
    return scores
