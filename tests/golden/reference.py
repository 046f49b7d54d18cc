#!/usr/bin/env python3
"""Makes golden/VARIANT.json: outputs of random models by a second implementation, in numpy and float64.

It shares no code with the Rust reference: files are read and dequantised by the `gguf` package (pip install numpy gguf).
Run from the directory `tests`:

    cargo run -p paceline-tests --example write_random_model -- tiny /tmp/model.gguf /tmp/drafter.gguf
    python golden/reference.py tiny /tmp/model.gguf /tmp/drafter.gguf > golden/tiny.json

The drafter may be left out; for the dense families there is none.
"""
import json
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

TOKENS = [72, 101, 108, 108, 111, 44, 32, 119, 111, 114, 108, 100, 33, 10, 7, 250, 131]
POSITIONS = [5, 16]
BLOCK_ROWS = [1, 7]
KEPT = 64


def load(path):
    """Tensors as float64 [rows, columns], and metadata by key."""
    reader = GGUFReader(path)
    tensors = {}
    for tensor in reader.tensors:
        values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float64)
        tensors[tensor.name] = values.reshape([int(n) for n in tensor.shape][::-1])
    return tensors, {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20))))


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def rope(x, positions, width, base):
    """x [tokens, heads, head]; pairs (i, i + width / 2)."""
    half = width // 2
    angle = positions[:, None] * base ** (-2 * np.arange(half) / width)
    cosine, sine = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:width]
    return np.concatenate([a * cosine - b * sine, a * sine + b * cosine, x[..., width:]], -1)


def attend(q, k, v, mask, scale):
    """q [n, heads, head], k and v [m, KV heads, head]."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = np.where(mask[None], np.einsum("nhd,mhd->hnm", q, k) * scale, -np.inf)
    return np.einsum("hnm,mhd->nhd", softmax(scores), v).reshape(len(q), -1)


class Part:
    """Tensors of a file with the functions that models share."""

    def __init__(self, path, prefix):
        self.w, keys = load(path)
        self.keys = keys
        self.key = lambda name, default=None: keys.get(f"{prefix}.{name}", default)
        self.eps = self.key("attention.layer_norm_rms_epsilon")

    def rms(self, x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * weight

    def linear(self, x, name):
        return x @ self.w[name + ".weight"].T

    def ffn(self, x, p):
        return self.linear(silu(self.linear(x, p + "ffn_gate")) * self.linear(x, p + "ffn_up"), p + "ffn_down")


class Target(Part):
    def __init__(self, path):
        super().__init__(path, "qwen35")
        self.embedding = self.w["token_embd.weight"]
        self.head = self.w.get("output.weight", self.embedding)
        self.layers = self.key("block_count") - self.key("nextn_predict_layers", 0)

    def attention(self, u, p):
        n, hd = len(u), self.key("attention.key_length")
        positions = np.arange(n, dtype=float)
        scale = self.key("attention.scale", 1 / np.sqrt(hd))
        both = self.linear(u, p + "attn_q").reshape(n, -1, 2 * hd)
        q, gate = both[..., :hd], both[..., hd:]
        k = self.linear(u, p + "attn_k").reshape(n, -1, hd)
        v = self.linear(u, p + "attn_v").reshape(n, -1, hd)
        turn = lambda x: rope(x, positions, self.key("rope.dimension_count"), self.key("rope.freq_base"))
        q = turn(self.rms(q, self.w[p + "attn_q_norm.weight"]))
        k = turn(self.rms(k, self.w[p + "attn_k_norm.weight"]))
        o = attend(q, k, v, np.tril(np.ones((n, n), bool)), scale) * sigmoid(gate.reshape(n, -1))
        return self.linear(o, p + "attn_output")

    def delta_net(self, u, p):
        n, d, taps = len(u), self.key("ssm.state_size"), self.key("ssm.conv_kernel")
        hk, hv = self.key("ssm.group_count"), self.key("ssm.time_step_rank")
        m = self.linear(u, p + "attn_qkv")
        z = self.linear(u, p + "attn_gate").reshape(n, hv, d)
        beta = sigmoid(self.linear(u, p + "ssm_beta"))
        g = self.w[p + "ssm_a"] * softplus(self.linear(u, p + "ssm_alpha") + self.w[p + "ssm_dt.bias"])
        padded = np.vstack([np.zeros((taps - 1, m.shape[1])), m])
        weight = self.w[p + "ssm_conv1d.weight"]
        c = silu(sum(padded[i : i + n] * weight[:, i] for i in range(taps)))
        q, k, v = np.split(c, [hk * d, 2 * hk * d], -1)
        unit = lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True) + self.eps)
        q, k, v = unit(q.reshape(n, hk, d)), unit(k.reshape(n, hk, d)), v.reshape(n, hv, d)
        state, out, key_head = np.zeros((hv, d, d)), np.zeros((n, hv, d)), np.arange(hv) % hk
        for t in range(n):
            state *= np.exp(g[t])[:, None, None]
            kt, qt = k[t, key_head], q[t, key_head]
            delta = beta[t][:, None] * (v[t] - np.einsum("hij,hi->hj", state, kt))
            state += kt[:, :, None] * delta[:, None, :]
            out[t] = np.einsum("hij,hi->hj", state, qt) / np.sqrt(d)
        y = self.rms(out, self.w[p + "ssm_norm.weight"]) * silu(z)
        return self.linear(y.reshape(n, -1), p + "ssm_out")

    def block(self, x, index):
        p = f"blk.{index}."
        mixer = self.attention if p + "attn_q.weight" in self.w else self.delta_net
        x = x + mixer(self.rms(x, self.w[p + "attn_norm.weight"]), p)
        return x + self.ffn(self.rms(x, self.w[p + "post_attention_norm.weight"]), p)

    def trunk(self, tokens):
        """Logits, state after the final norm, input of each layer."""
        x, inputs = self.embedding[tokens], []
        for layer in range(self.layers):
            inputs.append(x)
            x = self.block(x, layer)
        h = self.rms(x, self.w["output_norm.weight"])
        return h @ self.head.T, h, inputs

    def mtp(self, tokens, h):
        p = f"blk.{self.layers}.nextn."
        shifted = np.vstack([np.zeros(h.shape[1]), h[:-1]])
        e = self.rms(self.w.get(p + "embed_tokens.weight", self.embedding)[tokens], self.w[p + "enorm.weight"])
        r = self.rms(shifted, self.w[p + "hnorm.weight"])
        c = self.block(self.linear(np.concatenate([e, r], -1), p + "eh_proj"), self.layers)
        norm = self.w.get(p + "shared_head_norm.weight", self.w["output_norm.weight"])
        return self.rms(c, norm) @ self.w.get(p + "shared_head_head.weight", self.head).T


def rope_adjacent(x, angle):
    """x [tokens, heads, head], angle [tokens, pairs]; pairs (2i, 2i + 1) as complex numbers."""
    turned = 2 * angle.shape[1]
    z = (x[..., 0:turned:2] + 1j * x[..., 1:turned:2]) * np.exp(1j * angle)[:, None]
    rotated = np.stack([z.real, z.imag], -1).reshape(*z.shape[:-1], turned)
    return np.concatenate([rotated, x[..., turned:]], -1)


class Dense(Part):
    """Models of architecture `qwen3` or `llama`."""

    def __init__(self, path, architecture):
        super().__init__(path, architecture)
        self.is_llama = architecture == "llama"
        self.embedding = self.w["token_embd.weight"]
        self.head = self.w.get("output.weight", self.embedding)
        self.head_size = self.key("attention.key_length", self.embedding.shape[1] // self.key("attention.head_count"))

    def turn(self, x):
        positions = np.arange(len(x), dtype=float)
        if self.key("rope.scaling.type", "none") == "linear":
            positions = positions / self.key("rope.scaling.factor")
        width, base = self.key("rope.dimension_count", self.head_size), self.key("rope.freq_base")
        if not self.is_llama:
            return rope(x, positions, width, base)
        slower = self.w.get("rope_freqs.weight", np.ones(width // 2))
        return rope_adjacent(x, positions[:, None] * base ** (-np.arange(0, width, 2) / width) / slower)

    def product(self, x, name):
        return self.linear(x, name) + self.w.get(name + ".bias", 0)

    def trunk(self, tokens):
        x, n = self.embedding[tokens], len(tokens)
        causal = np.tril(np.ones((n, n), bool))
        for layer in range(self.key("block_count")):
            p = f"blk.{layer}."
            u = self.rms(x, self.w[p + "attn_norm.weight"])
            q, k, v = (self.product(u, p + "attn_" + part).reshape(n, -1, self.head_size) for part in "qkv")
            if not self.is_llama:
                q, k = self.rms(q, self.w[p + "attn_q_norm.weight"]), self.rms(k, self.w[p + "attn_k_norm.weight"])
            o = attend(self.turn(q), self.turn(k), v, causal, self.head_size**-0.5)
            x = x + self.product(o, p + "attn_output")
            x = x + self.ffn(self.rms(x, self.w[p + "ffn_norm.weight"]), p)
        h = self.rms(x, self.w["output_norm.weight"])
        return h @ self.head.T, h, None


class Drafter(Part):
    def __init__(self, path):
        super().__init__(path, "dflash")

    def block(self, target, inputs, anchor, count):
        hd, base = self.key("attention.key_length"), self.key("rope.freq_base")
        mask_token = int(self.keys["tokenizer.ggml.mask_token_id"])
        features = np.concatenate([inputs[layer] for layer in self.key("target_layers")], -1)
        g = self.rms(self.linear(features, "fc"), self.w["enc.output_norm.weight"])
        n = len(g)
        before, inside = np.arange(n, dtype=float), np.arange(n, n + count, dtype=float)
        x = target.embedding[[anchor] + [mask_token] * (count - 1)]
        for layer in range(self.key("block_count")):
            p = f"blk.{layer}."
            heads = lambda u, name: self.linear(u, p + name).reshape(len(u), -1, hd)
            turned = lambda u, name, at: rope(
                self.rms(heads(u, name), self.w[p + name + "_norm.weight"]), at, hd, base)
            u = self.rms(x, self.w[p + "attn_norm.weight"])
            k = np.vstack([turned(g, "attn_k", before), turned(u, "attn_k", inside)])
            v = np.vstack([heads(g, "attn_v"), heads(u, "attn_v")])
            everything = np.ones((count, n + count), bool)
            o = attend(turned(u, "attn_q", inside), k, v, everything, 1 / np.sqrt(hd))
            x = x + self.linear(o, p + "attn_output")
            x = x + self.ffn(self.rms(x, self.w[p + "ffn_norm.weight"]), p)
        return self.rms(x, self.w["output_norm.weight"]) @ target.head.T


def kept(logits, rows):
    return [[round(float(value), 7) for value in logits[row][:KEPT]] for row in rows]


def main():
    variant, target_path, *drafter_path = sys.argv[1:]
    architecture = load(target_path)[1]["general.architecture"]
    target = Target(target_path) if architecture == "qwen35" else Dense(target_path, architecture)
    logits, h, inputs = target.trunk(TOKENS)
    golden = {
        "about": "Made by golden/reference.py, an independent numpy implementation in float64, from the file that "
                 f"`write_random_model {variant}` writes. The first {KEPT} logits of some rows for `tokens`: of the "
                 "trunk and of the MTP block (states shifted by one, zeros first) at `positions`, and of rows "
                 "`block_rows` of a drafter's block of 8 after all tokens, anchor 42.",
        "variant": variant,
        "tokens": TOKENS,
        "positions": POSITIONS,
        "trunk": kept(logits, POSITIONS),
    }
    if target.key("nextn_predict_layers", 0):
        golden["mtp"] = kept(target.mtp(TOKENS, h), POSITIONS)
    if drafter_path:
        golden["block_rows"] = BLOCK_ROWS
        golden["drafter"] = kept(Drafter(drafter_path[0]).block(target, inputs, 42, 8), BLOCK_ROWS)
    print(json.dumps(golden))


if __name__ == "__main__":
    main()
