"""Makes two tiny language models with random weights: DIR/tiny-a and DIR/tiny-b.

They have the same shape and the same tokenizer and differ in the seed of their
weights, so their answers to one prompt at temperature 0 differ and a test can
tell which of them answered. A model is about half a megabyte.

With --large NAME it makes one alone, DIR/NAME, whose weights take 2 GiB.
"""

import os
import shutil
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 512
CONTEXT = 512
SEEDS = {"tiny-a": 1, "tiny-b": 2}
PROMPT = "The quick brown fox"

# Enough different words for the tokenizer to find all its merges in.
TEXT = """
The quick brown fox jumps over the lazy dog while the five boxing wizards watch.
A model that sleeps gives its memory back and wakes when somebody asks for it.
Pack my box with a dozen jugs of good wine, then carry it over the long bridge.
Every request waits in a queue until a worker takes it and writes an answer.
How are you today? Very well, thank you, and how is your old friend the baker?
The weather in the mountains changes fast: sunshine, then clouds, then snow.
She sells sea shells by the shore and counts them one two three four five six.
Small numbers such as 7, 12, 42, 100 and 2048 appear in this text as well.
Nothing here means anything in particular; only the letters and words matter.
Between morning and evening the river carries boats, leaves and yellow light.
Children learn to read with short stories about animals, kings and travellers.
Please describe the picture, explain the question and summarise the document.
"""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|{{ message['role'] }}|>\n{{ message['content'] }}</s>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        min_frequency=1,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT.splitlines(), trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        sys.exit(f"the text gives {tokenizer.get_vocab_size()} tokens, not {VOCABULARY}")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=CONTEXT,
        chat_template=CHAT_TEMPLATE,
    )


def make_model(seed: int, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=CONTEXT,
            # Wider than usual: the likeliest token then wins by a clear margin.
            initializer_range=0.2,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    ).eval()


def answer(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> list[int]:
    prompt = tokenizer(PROMPT, return_tensors="pt")
    return model.generate(
        prompt.input_ids,
        attention_mask=prompt.attention_mask,
        max_new_tokens=8,
        do_sample=False,
        pad_token_id=tokenizer.eos_token_id,
    )[0].tolist()


def make_large(target: str) -> None:
    """Makes a model of 2.0 GiB of bfloat16, whose answers mean nothing."""
    shutil.rmtree(target, ignore_errors=True)
    tokenizer = make_tokenizer()
    torch.set_default_dtype(torch.bfloat16)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=2048,
            intermediate_size=5632,
            num_hidden_layers=21,
            num_attention_heads=16,
            max_position_embeddings=CONTEXT,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    model.save_pretrained(target, max_shard_size="4GB")
    tokenizer.save_pretrained(target)


def main(folder: str) -> None:
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    answers = []
    for name, seed in SEEDS.items():
        target = os.path.join(folder, name)
        shutil.rmtree(target, ignore_errors=True)
        model = make_model(seed, tokenizer)
        answers.append(answer(model, tokenizer))
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)
    if answers[0] == answers[1]:
        sys.exit("the two models answer alike; choose other seeds")


if __name__ == "__main__":
    if sys.argv[1] == "--large":
        make_large(os.path.join(sys.argv[3], sys.argv[2]))
    else:
        main(sys.argv[1])
