"""Asks several models in turn with Ollama's client for Python: ask_ollama.py URL MODEL..."""

import sys

import ollama

client = ollama.Client(host=sys.argv[1].removesuffix("/v1"))
models = sys.argv[2:]
listed = [m.model for m in client.list().models]
assert all(m in listed for m in models), listed
options = {"num_predict": 8, "temperature": 0}
messages = [{"role": "user", "content": "Who has the seat?"}]
for model in models * 2:
    assert client.show(model).capabilities, model
    chat = client.chat(model, messages, options=options)
    assert chat.model == model, chat
    assert chat.message.content, chat
    assert chat.done_reason == "length", chat
    assert chat.eval_count == 8, chat
    assert model in [m.model for m in client.ps().models]
    parts = list(client.chat(model + ":latest", messages, options=options, stream=True))
    assert "".join(p.message.content for p in parts) == chat.message.content, parts
    assert [p.done for p in parts] == [False] * (len(parts) - 1) + [True], parts
    assert parts[-1].eval_count == 8, parts
    text = client.generate(model, "a", options=options).response
    assert text
    assert "".join(p.response for p in client.generate(model, "a", options=options, stream=True)) == text
    assert client.generate(model, keep_alive="5m").done_reason == "load"
    assert len(client.embed("embed", ["a", "b"]).embeddings) == 2
    assert client.embed("embed", "a").embeddings[0]
try:
    client.chat("nothing", messages)
except ollama.ResponseError as e:
    assert e.status_code == 404, e
    assert models[0] in e.error, e
else:
    raise AssertionError("a model that is not there answered")
