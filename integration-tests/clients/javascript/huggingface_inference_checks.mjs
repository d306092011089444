// `@huggingface/inference`: InferenceClient with the server as its endpoint. It asks /v1/completions for text, with TGI's
// names of the parameters.
import assert from 'node:assert/strict';
import test from 'node:test';
import { InferenceClient, InferenceClientProviderApiError } from '@huggingface/inference';
import { FRANCE, SAY_HI, all, busyUrl, generated, key, lockedUrl, url } from './servers.mjs';

const client = new InferenceClient('', { endpointUrl: url });
const GREEDY = { messages: SAY_HI, max_tokens: 4, temperature: 0 };

const refused = (status, pattern) => (error) => {
  assert.ok(error instanceof InferenceClientProviderApiError, String(error));
  assert.equal(error.httpResponse.status, status);
  assert.match(JSON.stringify(error.httpResponse.body), pattern);
  assert.ok(error.httpResponse.requestId);
  return true;
};

test('a greedy text is what generate answers', async () => {
  const parameters = { max_new_tokens: 4, temperature: 0 };
  const answer = await client.textGeneration({ inputs: FRANCE, parameters });
  assert.equal(answer.generated_text, await generated(4));
});

test("every parameter of TGI's at once", async () => {
  const parameters = {
    best_of: 1,
    decoder_input_details: false,
    details: true,
    do_sample: true,
    frequency_penalty: 0.1,
    max_new_tokens: 4,
    repetition_penalty: 1.1,
    return_full_text: false,
    seed: 7,
    stop: ['\n\n\n'],
    temperature: 0.7,
    top_k: 40,
    top_n_tokens: 2,
    top_p: 0.9,
    truncate: 4,
    typical_p: 0.95,
    watermark: false,
  };
  const answer = await client.textGeneration({ inputs: FRANCE, parameters });
  assert.ok(answer.generated_text);
});

test('a text stream is the whole answer piece by piece', async () => {
  const parameters = { max_new_tokens: 4, temperature: 0 };
  const chunks = await all(client.textGenerationStream({ inputs: FRANCE, parameters }));
  assert.equal(chunks.map((chunk) => chunk.choices[0]?.text ?? '').join(''), await generated(4));
});

test('a chat answers with a message', async () => {
  const answer = await client.chatCompletion(GREEDY);
  assert.equal(answer.choices[0].message.role, 'assistant');
  assert.ok(answer.choices[0].message.content);
  assert.equal(answer.usage.completion_tokens, 4);
});

test('a chat stream is the whole answer piece by piece', async () => {
  const chunks = await all(client.chatCompletionStream(GREEDY));
  const whole = await client.chatCompletion(GREEDY);
  assert.equal(
    chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join(''),
    whole.choices[0].message.content,
  );
});

test('a bad field is an error that says which, also of a stream', async () => {
  const wish = { ...GREEDY, max_tokens: 100_000 };
  await assert.rejects(client.chatCompletion(wish), refused(422, /max_tokens/));
  await assert.rejects(all(client.chatCompletionStream(wish)), refused(422, /max_tokens/));
  const parameters = { max_new_tokens: 100_000 };
  await assert.rejects(client.textGeneration({ inputs: FRANCE, parameters }), refused(422, /max_tokens/));
});

test('the key opens a locked server', async () => {
  await assert.rejects(
    new InferenceClient('wrong', { endpointUrl: lockedUrl }).chatCompletion(GREEDY),
    refused(401, /key/),
  );
  const answer = await new InferenceClient(key, { endpointUrl: lockedUrl }).chatCompletion(GREEDY);
  assert.equal(answer.usage.completion_tokens, 4);
});

test('a second request of a busy server is refused with 429', async () => {
  const busy = new InferenceClient('', { endpointUrl: busyUrl });
  const abort = new AbortController();
  const first = busy.chatCompletionStream({ ...GREEDY, max_tokens: 500 }, { signal: abort.signal });
  await first.next();
  try {
    await assert.rejects(busy.chatCompletion(GREEDY), refused(429, /overloaded/));
  } finally {
    abort.abort();
  }
});
