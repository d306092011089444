// `openai`, the official JavaScript SDK, pointed at the server by `baseURL`.
import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI from 'openai';
import { FRANCE, LIST, SAY_HI, all, busyUrl, generated, key, lockedUrl, url } from './servers.mjs';

const at = (address, apiKey = 'unused') => new OpenAI({ baseURL: `${address}/v1`, apiKey, maxRetries: 0 });
const client = at(url);
const chat = (more = {}) =>
  client.chat.completions.create({ model: 'tgi', messages: SAY_HI, max_tokens: 4, temperature: 0, ...more });
const complete = (more = {}) =>
  client.completions.create({ model: 'tgi', prompt: FRANCE, max_tokens: 4, temperature: 0, ...more });

test('the model is listed and can be asked for', async () => {
  const [model] = await all(client.models.list());
  assert.deepEqual(await client.models.retrieve(model.id), model);
});

test('a greedy completion is what generate answers', async () => {
  const answer = await complete();
  assert.equal(answer.choices[0].text, await generated(4));
  assert.equal(answer.choices[0].finish_reason, 'length');
  assert.equal(answer.usage.completion_tokens, 4);
  assert.ok(answer.id);
});

test('a list of prompts is answered in its order', async () => {
  const answer = await complete({ prompt: [FRANCE, LIST] });
  assert.deepEqual(answer.choices.map((choice) => choice.index), [0, 1]);
  assert.equal(answer.choices[0].text, await generated(4));
});

test('a completion stream is the whole answer piece by piece', async () => {
  const chunks = await all(await complete({ stream: true, stream_options: { include_usage: true } }));
  const usage = chunks.pop();
  assert.equal(chunks.map((chunk) => chunk.choices[0].text).join(''), await generated(4));
  assert.equal(chunks.at(-1).choices[0].finish_reason, 'length');
  assert.deepEqual(usage.choices, []);
  assert.equal(usage.usage.completion_tokens, 4);
});

test('a chat answers with a message', async () => {
  const answer = await chat();
  assert.equal(answer.choices[0].message.role, 'assistant');
  assert.ok(answer.choices[0].message.content);
  assert.equal(answer.choices[0].finish_reason, 'length');
  assert.equal(answer.usage.completion_tokens, 4);
});

test('many options of a chat at once', async () => {
  const answer = await chat({
    frequency_penalty: 0.1,
    logit_bias: { 5: 1 },
    logprobs: true,
    max_completion_tokens: 3,
    max_tokens: 3,
    metadata: { run: '1' },
    n: 2,
    presence_penalty: 0.1,
    response_format: { type: 'text' },
    seed: 7,
    service_tier: 'auto',
    stop: '\n\n\n',
    store: false,
    stream_options: null,
    temperature: 0.7,
    top_logprobs: 2,
    top_p: 1,
    user: 'somebody',
  });
  assert.equal(answer.choices.length, 2);
  for (const token of answer.choices[0].logprobs.content) assert.equal(token.top_logprobs.length, 2);
});

test('a chat stream is the whole answer piece by piece, and says the role once', async () => {
  const chunks = await all(await chat({ stream: true }));
  const deltas = chunks.map((chunk) => chunk.choices[0].delta);
  assert.equal(deltas.map((delta) => delta.content ?? '').join(''), (await chat()).choices[0].message.content);
  assert.deepEqual(deltas.map((delta) => delta.role).filter(Boolean), ['assistant']);
  assert.equal(chunks.at(-1).choices[0].finish_reason, 'length');
});

test("the SDK's helper puts a stream together", async () => {
  const stream = client.chat.completions.stream({ model: 'tgi', messages: SAY_HI, max_tokens: 4, temperature: 0 });
  const whole = await stream.finalChatCompletion();
  assert.equal(whole.choices[0].message.role, 'assistant');
  assert.equal(whole.choices[0].message.content, (await chat()).choices[0].message.content);
});

test('a stop string ends a chat and is not part of it', async () => {
  const [choice] = (await chat({ stop: '!', max_tokens: 40 })).choices;
  assert.equal(choice.finish_reason, 'stop');
  assert.ok(!choice.message.content.includes('!'));
});

test('every answer has an id', async () => {
  const { data, request_id } = await chat({ max_tokens: 1 }).withResponse();
  assert.ok(data.id);
  assert.ok(request_id);
});

test('a bad field is an UnprocessableEntityError, also of a stream', async () => {
  for (const stream of [false, true]) {
    for (const ask of [chat, complete]) {
      await assert.rejects(ask({ max_tokens: 100_000, stream }), (error) => {
        assert.ok(error instanceof OpenAI.UnprocessableEntityError, String(error));
        assert.equal(error.param, 'max_tokens');
        assert.equal(error.code, 'context_length_exceeded');
        assert.ok(error.type && error.requestID);
        return true;
      });
    }
  }
});

test('an unknown model is a NotFoundError', async () => {
  await assert.rejects(client.models.retrieve('nobody/nothing'), OpenAI.NotFoundError);
});

test('the key opens a locked server, and a wrong one is an AuthenticationError', async () => {
  const wish = { model: 'tgi', messages: SAY_HI, max_tokens: 2 };
  await assert.rejects(at(lockedUrl, 'wrong').chat.completions.create(wish), OpenAI.AuthenticationError);
  assert.equal((await at(lockedUrl, key).chat.completions.create(wish)).usage.completion_tokens, 2);
});

test('a second request of a busy server is a RateLimitError', async () => {
  const busy = at(busyUrl);
  const first = await busy.completions.create({ model: 'tgi', prompt: FRANCE, max_tokens: 500, stream: true });
  const events = first[Symbol.asyncIterator]();
  await events.next();
  try {
    await assert.rejects(busy.chat.completions.create({ model: 'tgi', messages: SAY_HI }), OpenAI.RateLimitError);
  } finally {
    first.controller.abort();
    await events.return();
  }
});
