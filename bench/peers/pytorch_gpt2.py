"""GPT-2 in PyTorch (1.13 or later): the model of the library's benchmarks, on the CPU and on a GPU."""
import math

import torch
import torch.nn.functional as F
from torch import nn

masks = {}


def future(length, device):
    if (length, device) not in masks:
        masks[length, device] = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
    return masks[length, device]


def causal_attention(q, k, v):
    """(batch, heads, time, head size); PyTorch 1.13 has no fused one."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = q @ k.transpose(-2, -1) * (1 / math.sqrt(q.shape[-1]))
    return scores.masked_fill(future(q.shape[-2], q.device), -math.inf).softmax(-1) @ v


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        mixed = causal_attention(*qkv.permute(2, 0, 3, 1, 4).unbind(0))
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt2(nn.Module):
    """Learned positions, LayerNorm before each half of a block, biases, the head tied to the embedding."""

    def __init__(self, layers, heads, width, context, vocabulary):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.token.weight)
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))
