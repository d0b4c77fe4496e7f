"""Asks several models in turn with the OpenAI client for Python: chat.py URL MODEL..."""

import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
models = sys.argv[2:]
listed = [m.id for m in client.models.list()]
assert all(m in listed for m in models), listed
assert client.models.retrieve(models[0]).id == models[0]
for model in models * 2:
    messages = [{"role": "user", "content": "Who has the seat?"}]
    chat = client.chat.completions.create(model=model, messages=messages, max_tokens=8)
    assert chat.model == model, chat
    assert chat.choices[0].message.content, chat
    text = ""
    for chunk in client.chat.completions.create(
        model=model,
        messages=messages,
        max_tokens=8,
        stream=True,
        extra_headers={"X-Hotseat-Progress": "reasoning"},
    ):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
    assert text == chat.choices[0].message.content, text
    assert client.completions.create(model=model, prompt="a", max_tokens=2).choices[0].text
    assert client.embeddings.create(model="embed", input=["a", "b"], encoding_format="float").data[1].embedding
try:
    client.chat.completions.create(model="nothing", messages=[])
except openai.NotFoundError as e:
    assert e.code == "model_not_found", e
    assert models[0] in e.message, e
else:
    raise AssertionError("a model that is not there answered")
