"""Makes tiny language models in the format GGUF, with random weights, in DIR:

    tiny-a.gguf, tiny-b.gguf                   two models that answer differently
    split/tiny-a-00001-of-00002.gguf, …        the first one in two parts

They have the same shape and the same tokenizer and differ in the seed of their weights. Each
takes half a megabyte, and answers the same each time at temperature 0.
"""

import os
import sys

import gguf
import numpy as np

SEEDS = {"tiny-a": 1, "tiny-b": 2}
LAYERS, WIDTH, HEADS, INNER, CONTEXT = 2, 64, 2, 128, 512
LETTERS = 95

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|{{ message['role'] }}|>\n{{ message['content'] }}</s>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def tokens():
    """The pieces of a SentencePiece vocabulary: three specials, all bytes, and all letters."""
    kind = gguf.TokenType
    pieces = [("<unk>", kind.UNKNOWN), ("<s>", kind.CONTROL), ("</s>", kind.CONTROL)]
    pieces += [(f"<0x{n:02X}>", kind.BYTE) for n in range(256)]
    pieces += [("\u2581", kind.NORMAL)] + [(chr(n), kind.NORMAL) for n in range(33, 127)]
    return pieces


def write(path, name, seed, parts=1):
    pieces = tokens()
    tensors = weights(np.random.default_rng(seed), len(pieces))
    options = {"split_max_tensors": -(-len(tensors) // parts)} if parts > 1 else {}
    w = gguf.GGUFWriter(path, "llama", **options)
    w.add_name(name)
    w.add_context_length(CONTEXT)
    w.add_embedding_length(WIDTH)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(INNER)
    w.add_head_count(HEADS)
    w.add_head_count_kv(HEADS)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(WIDTH // HEADS)
    w.add_vocab_size(len(pieces))
    w.add_tokenizer_model("llama")
    w.add_token_list([text for text, _ in pieces])
    w.add_token_scores([0.0] * len(pieces))
    w.add_token_types([kind for _, kind in pieces])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_chat_template(CHAT_TEMPLATE)
    for tensor, values in tensors.items():
        w.add_tensor(tensor, values)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def weights(random, vocabulary):
    def normal(*shape):
        return random.normal(0, 0.2, shape).astype(np.float32)

    all = {"token_embd.weight": normal(vocabulary, WIDTH)}
    for n in range(LAYERS):
        block = f"blk.{n}."
        all[block + "attn_norm.weight"] = np.ones(WIDTH, np.float32)
        for part in ("q", "k", "v", "output"):
            all[f"{block}attn_{part}.weight"] = normal(WIDTH, WIDTH)
        all[block + "ffn_norm.weight"] = np.ones(WIDTH, np.float32)
        all[block + "ffn_gate.weight"] = normal(INNER, WIDTH)
        all[block + "ffn_up.weight"] = normal(INNER, WIDTH)
        all[block + "ffn_down.weight"] = normal(WIDTH, INNER)
    all["output_norm.weight"] = np.ones(WIDTH, np.float32)
    # Letters always win over bytes and specials: every answer is text, and goes on to its limit.
    all["output.weight"] = 5 * normal(vocabulary, WIDTH)
    all["output.weight"][:-LETTERS] = 0
    return all


def main(folder):
    os.makedirs(os.path.join(folder, "split"), exist_ok=True)
    for name, seed in SEEDS.items():
        write(os.path.join(folder, name + ".gguf"), name, seed)
    write(os.path.join(folder, "split", "tiny-a.gguf"), "tiny-a", SEEDS["tiny-a"], parts=2)


if __name__ == "__main__":
    main(sys.argv[1])
