// What the checks of every JavaScript client share: the servers' addresses, and what curl would get. What each server is,
// ../python/conftest.py says.

export const url = process.env.HEADRACE_URL;
export const lockedUrl = process.env.HEADRACE_LOCKED_URL;
export const busyUrl = process.env.HEADRACE_BUSY_URL;
export const key = process.env.HEADRACE_KEY;

export const FRANCE = 'The capital of France is';
export const LIST = 'Write a list of three colours:\n1.';
export const SAY_HI = [{ role: 'user', content: 'Say hi.' }];

/** What /generate answers to FRANCE with so many greedy tokens. */
export async function generated(count) {
  const body = JSON.stringify({ inputs: FRANCE, parameters: { max_new_tokens: count } });
  const answer = await fetch(`${url}/generate`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  return (await answer.json()).generated_text;
}

/** Everything that a stream brings. */
export async function all(stream) {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
}
