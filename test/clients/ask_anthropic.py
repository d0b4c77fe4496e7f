"""Asks several models in turn with Anthropic's client for Python: ask_anthropic.py URL MODEL..."""

import sys

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1].removesuffix("/v1"), api_key="none", max_retries=0)
models = sys.argv[2:]
listed = [m.id for m in client.models.list()]
assert all(m in listed for m in models), listed
assert client.models.retrieve(models[0]).id == models[0]
for model in models * 2:
    question = {
        "model": model,
        "max_tokens": 8,
        "system": "Answer briefly.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Who has the seat?"}]}],
    }
    said = client.messages.create(**question)
    assert said.model == model, said
    assert said.content[0].text, said
    assert said.stop_reason == "max_tokens", said
    assert said.usage.output_tokens == 8, said
    with client.messages.stream(**question, extra_headers={"X-Hotseat-Progress": "reasoning"}) as stream:
        text = "".join(stream.text_stream)
        last = stream.get_final_message()
    assert text == said.content[0].text, text
    assert last.stop_reason == "max_tokens", last
    assert last.usage.output_tokens == 8, last
    del question["max_tokens"]
    assert client.messages.count_tokens(**question).input_tokens == said.usage.input_tokens
try:
    client.messages.create(model="nothing", max_tokens=1, messages=[{"role": "user", "content": "a"}])
except anthropic.NotFoundError as e:
    assert e.body["error"]["type"] == "not_found_error", e.body
    assert models[0] in e.body["error"]["message"], e.body
else:
    raise AssertionError("a model that is not there answered")
