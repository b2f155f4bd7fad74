"""PyTorch beside the table, at the same sizes: the fused attention, forward, and the training step of GPT-2 124M in float
(no TF32) and with bf16 autocast, AdamW, clipping to 1; eager, and by torch.compile where that works."""
import pathlib
import sys
import time

import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench/peers"))
from pytorch_gpt2 import Gpt2

TOKENS, WIDTH = 8192, 768


def seconds_of(call, calls):
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def say(text):
    print(f"PyTorch {torch.__version__}, {text}", flush=True)


def attention(head_size, length=2048):
    shape = (TOKENS // length, WIDTH // head_size, length, head_size)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    seconds = seconds_of(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), 50)
    say(f"attention_forward {head_size} softmax, bf16: {1e3 * seconds:.4f} ms")


def training_step(half, compiled, context=1024):
    torch.manual_seed(0)
    model = Gpt2(layers=12, heads=12, width=WIDTH, context=context, vocabulary=50257).cuda()
    loss_of = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    tokens, targets = (torch.randint(50257, (TOKENS // context, context), device="cuda") for _ in range(2))

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            loss = loss_of(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    seconds = seconds_of(step, 8)
    say(f"GPT-2 124M step, {'bf16 autocast' if half else 'float'}, {'compiled' if compiled else 'eager'}: "
        f"{1e3 * seconds:.1f} ms, {TOKENS / seconds:.0f} tokens/s")


torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
attention(64)
attention(128)
training_step(half=False, compiled=False)
training_step(half=True, compiled=False)
try:
    training_step(half=True, compiled=True)
except Exception as error:  # no compiler, no Triton: of many types
    say(f"torch.compile does not work here: {type(error).__name__}")
