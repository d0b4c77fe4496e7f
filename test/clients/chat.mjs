// Asks several models in turn with the OpenAI client for JavaScript: chat.mjs URL MODEL...
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const [url, ...models] = process.argv.slice(2);
const client = new OpenAI({ baseURL: url, apiKey: 'none', maxRetries: 0 });
const listed = [];
for await (const m of client.models.list()) listed.push(m.id);
for (const m of models) assert(listed.includes(m), listed.join());
assert.equal((await client.models.retrieve(models[0])).id, models[0]);
for (const model of [...models, ...models]) {
  const messages = [{ role: 'user', content: 'Who has the seat?' }];
  const chat = await client.chat.completions.create({ model, messages, max_tokens: 8 });
  assert.equal(chat.model, model);
  assert(chat.choices[0].message.content);
  let text = '';
  const stream = await client.chat.completions.create(
    { model, messages, max_tokens: 8, stream: true },
    { headers: { 'X-Hotseat-Progress': 'reasoning' } },
  );
  for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
  assert.equal(text, chat.choices[0].message.content);
  assert((await client.completions.create({ model, prompt: 'a', max_tokens: 2 })).choices[0].text);
  assert((await client.embeddings.create({ model: 'embed', input: ['a', 'b'], encoding_format: 'float' })).data[1].embedding.length);
}
await assert.rejects(client.chat.completions.create({ model: 'nothing', messages: [] }), (e) => {
  assert(e instanceof OpenAI.NotFoundError, e);
  assert.equal(e.code, 'model_not_found');
  assert(e.message.includes(models[0]), e.message);
  return true;
});
