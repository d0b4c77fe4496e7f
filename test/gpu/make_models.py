"""Makes two models with random weights, DIR/a and DIR/b, and DIR/large-a and DIR/large-b.

a and b are Llamas of 3.5 GiB of bfloat16 in safetensors; they differ in the seed of their
weights. The large ones are the configuration alone, of 15 GiB: vLLM fills such a
model with random numbers itself (--load-format dummy). All have the tokenizer of
test/vllm-cpu/make_models.py. The answers mean nothing.
"""

import os
import shutil
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "vllm-cpu"))
from make_models import VOCABULARY, make_tokenizer  # noqa: E402

CONTEXT = 4096
SEEDS = {"a": 1, "b": 2}


def config(tokenizer, hidden, intermediate, layers, heads):
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=CONTEXT,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        dtype="bfloat16",
        architectures=["LlamaForCausalLM"],
    )


def main(folder):
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = CONTEXT
    torch.set_default_dtype(torch.bfloat16)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for name, seed in SEEDS.items():
        target = os.path.join(folder, name)
        shutil.rmtree(target, ignore_errors=True)
        torch.manual_seed(seed)
        with torch.device(device):
            model = LlamaForCausalLM(config(tokenizer, 2048, 8192, 30, 16))
        model.save_pretrained(target, max_shard_size="8GB")
        tokenizer.save_pretrained(target)
        print(target, sum(p.numel() * p.element_size() for p in model.parameters()), "bytes", flush=True)
        del model
    for name in SEEDS:
        target = os.path.join(folder, "large-" + name)
        shutil.rmtree(target, ignore_errors=True)
        config(tokenizer, 4096, 14336, 36, 32).save_pretrained(target)
        tokenizer.save_pretrained(target)


if __name__ == "__main__":
    main(sys.argv[1])
