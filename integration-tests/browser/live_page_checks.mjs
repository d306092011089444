// The page at `/`, used as people use it: by keyboard, in both colour schemes, on a narrow screen, with a screen reader's view
// of it, while the server is busy, and when it goes and comes back. test_live_page.py says what the servers are.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import axe from 'axe-core';
import { LIMIT, launch, open, says, text } from './browser.mjs';

// Each has two rows. `quickUrl` makes up its tokens; POST /stop and /start of `controlUrl` do so to it.
const { HEADRACE_URL: realUrl, HEADRACE_QUICK_URL: quickUrl, HEADRACE_CONTROL_URL: controlUrl } = process.env;
const { HEADRACE_LOCKED_URL: lockedUrl, HEADRACE_KEY: key } = process.env;

const PROMPT = 'Water boils at a temperature of';

let browser;
let page;
let url; // of the server whose page that is
before(async () => (browser = await launch()));
after(() => browser?.close());
afterEach(async () => {
  await page?.browserContext().close();
  page = undefined;
});

async function visit(address, options = {}) {
  await page?.browserContext().close();
  url = address;
  page = await open(browser, address, options);
}

// ---- what a server says of itself, and what keeps it busy ----

async function post(path, body, more = {}) {
  const headers = { 'content-type': 'application/json' };
  return fetch(`${url}/${path}`, { method: 'POST', headers, body: JSON.stringify(body), ...more });
}

async function metric(name) {
  const lines = (await (await fetch(`${url}/metrics`)).text()).split('\n');
  return Number(lines.find((line) => line.startsWith(`${name} `))?.split(' ')[1] ?? 0);
}

const running = () => metric('tgi_batch_current_size');

async function until(condition, what, limit = LIMIT) {
  const deadline = Date.now() + limit;
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, `waited ${limit} ms for ${what}`);
    await pause(50);
  }
}

/** Does `work` while so many requests run or wait. */
async function busy(requests, work) {
  const inside = async () => (await running()) + (await metric('tgi_queue_size'));
  const leave = new AbortController();
  const prompt = { inputs: PROMPT, parameters: { max_new_tokens: 2000, ignore_eos_token: true } };
  // One that waits is answered when its first token is there.
  const answers = Array.from({ length: requests }, () => post('generate_stream', prompt, { signal: leave.signal }));
  const ended = Promise.allSettled(answers);
  try {
    await until(async () => (await inside()) === requests, 'the load to be there');
    return await work();
  } finally {
    leave.abort();
    await ended;
    await until(async () => (await inside()) === 0, 'the load to be gone');
  }
}

// ---- doing things by keyboard ----

/** Where the focus is: an id, or the name of what has none. */
const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.tagName.toLowerCase());

async function tabTo(id) {
  for (let presses = 0; presses < 20; presses += 1) {
    if ((await focused()) === id) return;
    await page.keyboard.press('Tab');
  }
  assert.fail(`Tab does not lead to ${id}`);
}

async function type(id, words) {
  await tabTo(id);
  await page.keyboard.down('Control');
  await page.keyboard.press('a');
  await page.keyboard.up('Control');
  await page.keyboard.type(words);
}

async function choose(mode) {
  await tabTo('mode');
  await page.keyboard.type(mode);
}

/** Fills the form in the order in which Tab leads through it, and sends it with Enter. */
async function ask({ prompt = PROMPT, mode = 'Text', tokens = 12 }) {
  await page.focus('body');
  await type('prompt', prompt);
  await choose(mode);
  await type('tokens', String(tokens));
  await tabTo('send');
  await page.keyboard.press('Enter');
}

const ready = () => says(page, '#state', /^Serving$/).then(() => says(page, '#model', /SmolLM2/));

/** Whether a screen reader is told when the text of an element changes, and how urgently. */
const heard = (selector) =>
  page.$eval(selector, (element) => {
    const region = element.closest('[aria-live], [role=status], [role=alert], [role=log]');
    if (!region || !element.checkVisibility()) return 'no';
    const implied = { alert: 'assertive', status: 'polite', log: 'polite' }[region.getAttribute('role')];
    return region.getAttribute('aria-live') ?? implied;
  });

// ---- the checks ----

test('it loads without a complaint, and asks nobody but its server', async () => {
  await visit(realUrl);
  await ready();
  assert.deepEqual(page.problems, []);
  assert.ok(page.asked.length > 2, 'the page, its samples, and what model it is');
  for (const asked of page.asked) assert.ok(asked.startsWith('data:') || new URL(asked).origin === url, asked);
});

test('Tab leads through it in the order in which it reads, and the focus can be seen', async () => {
  await visit(quickUrl);
  await ready();
  const stops = [];
  for (let presses = 0; presses < 8; presses += 1) {
    await page.keyboard.press('Tab');
    stops.push(await focused());
    assert.equal(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), 'solid', stops.at(-1));
  }
  assert.deepEqual(stops, ['prompt', 'mode', 'tokens', 'temperature', 'send', 'stop', 'answer', 'say']);
});

test('a prompt typed and sent by keyboard streams the answer that generate gives', async () => {
  await visit(realUrl);
  await ready();
  await ask({ tokens: 8 });
  await says(page, '#outcome', /^8 tokens/);
  const { generated_text: whole } = await (await post('generate', { inputs: PROMPT, parameters: { max_new_tokens: 8 } })).json();
  assert.equal(await text(page, '#answer'), whole);
  assert.equal(await page.$eval('#answer', (answer) => answer.childNodes.length), 8, 'it came piece by piece');
  assert.deepEqual(page.problems, []);
});

test('Control and Enter send, and a chat message is answered as chat completions do', async () => {
  await visit(realUrl);
  await ready();
  await choose('Chat');
  await type('tokens', '12');
  await page.keyboard.down('Shift');
  for (let presses = 0; presses < 2; presses += 1) await page.keyboard.press('Tab');
  await page.keyboard.up('Shift');
  await type('prompt', 'Name a prime.');
  await page.keyboard.down('Control');
  await page.keyboard.press('Enter');
  await page.keyboard.up('Control');
  await says(page, '#outcome', /^\d+ tokens/);
  const messages = [{ role: 'user', content: 'Name a prime.' }];
  const answer = await (await post('v1/chat/completions', { messages, max_tokens: 12, temperature: 0 })).json();
  assert.equal(await text(page, '#answer'), answer.choices[0].message.content);
});

test('a screen reader hears that it answers, then the whole answer once, and no figure unasked', async () => {
  await visit(quickUrl);
  await ready();
  await ask({ tokens: 100 });
  await says(page, '#answer', /\S/);
  assert.equal(await page.$eval('#answer', (answer) => answer.getAttribute('aria-busy')), 'true');
  assert.equal(await focused(), 'send', 'who sends by keyboard stays where they are');
  await says(page, '#outcome', /^100 tokens/);
  assert.equal(await page.$eval('#answer', (answer) => answer.getAttribute('aria-busy')), 'false');
  assert.deepEqual([await heard('#answer'), await heard('#outcome'), await heard('#state')], ['polite', 'polite', 'polite']);
  for (const figure of ['rows', 'queue', 'kv', 'rate']) assert.equal(await heard(`#${figure}-now`), 'no');
  await tabTo('say');
  await page.keyboard.press('Enter');
  assert.match(await text(page, '#said'), /running.*waiting.*KV cache.*tokens per second/);
  assert.equal(await heard('#said'), 'polite');
});

test('rows, queue, KV use and tokens a second move with the load, as numbers, as pictures, and by name', async () => {
  await visit(realUrl);
  await ready();
  await says(page, '#rows-now', /^0 of 2/);
  const shapes = () =>
    page.$$eval('svg[role=img]', (all) => {
      const height = (svg) => Math.max(...[...svg.querySelectorAll('polyline')].map((line) => line.getBBox().height));
      return Object.fromEntries(all.map((svg) => [svg.id, height(svg)]));
    });
  const idle = await shapes();
  await busy(5, async () => {
    await says(page, '#rows-now', /^2 of 2: 2 decode/);
    await says(page, '#queue-now', /^3 waiting/);
    await says(page, '#kv-now', /^(?!0 )[\d.]+ % used/);
    await says(page, '#rate-now', /: [1-9]\d* generated/);
    for (const figure of Object.keys(idle)) {
      await until(async () => (await shapes())[figure] > idle[figure], `the picture of ${figure} to rise`);
    }
    const all = (node) => [node, ...(node.children ?? []).flatMap(all)];
    const names = all(await page.accessibility.snapshot()).filter(({ role }) => role === 'image').map(({ name }) => name);
    for (const wanted of [/Rows.*2 of 2/, /Queue.*3 waiting/, /KV cache.*% used/, /Tokens per second.*generated/]) {
      assert.ok(names.some((name) => wanted.test(name)), `no picture is named ${wanted}: ${names}`);
    }
  });
  await says(page, '#rows-now', /^0 of 2/);
  await says(page, '#queue-now', /^0 waiting/);
});

test('what the server refuses is said in its words, as an alert', async () => {
  await visit(quickUrl);
  await ready();
  for (const wish of [{ tokens: 100_000 }, { prompt: 'word '.repeat(9000) }]) {
    if (wish.prompt) {
      // Nobody types so much: it is pasted.
      await page.$eval('#prompt', (field, words) => (field.value = words), wish.prompt);
      await type('tokens', '5');
      await page.keyboard.press('Enter');
    } else {
      await ask(wish);
    }
    const parameters = { max_new_tokens: wish.tokens ?? 5 };
    const refused = await (await post('generate', { inputs: wish.prompt ?? PROMPT, parameters })).json();
    assert.equal(refused.error_type, 'validation');
    await says(page, '#wrong', new RegExp(refused.error.replace(/[^\w\s]/g, '\\$&')));
    assert.equal(await heard('#wrong'), 'assertive');
  }
  await ask({ tokens: 2 });
  await says(page, '#outcome', /^2 tokens/);
  assert.equal(await text(page, '#wrong'), '', 'what was wrong is no longer');
});

test('Stop ends the request on the server, and keeps what was answered', async () => {
  await visit(quickUrl);
  await ready();
  await ask({ tokens: 2000 });
  await says(page, '#answer', /\S/);
  assert.equal(await running(), 1);
  await tabTo('stop');
  await page.keyboard.press('Enter');
  await says(page, '#outcome', /^Stopped after [1-9]\d* token/);
  await until(async () => (await running()) === 0, 'the server to drop the request', 5000);
  assert.match(await text(page, '#answer'), /\S/);
  await ask({ tokens: 2 });
  await says(page, '#outcome', /^2 tokens/);
});

test('Escape stops, too', async () => {
  await visit(quickUrl);
  await ready();
  await ask({ tokens: 2000 });
  await says(page, '#answer', /\S/);
  await page.keyboard.press('Escape');
  await says(page, '#outcome', /^Stopped/);
  await until(async () => (await running()) === 0, 'the server to drop the request', 5000);
});

test('who goes to another page cancels what was asked', async () => {
  await visit(quickUrl);
  await ready();
  await ask({ tokens: 2000 });
  await says(page, '#answer', /\S/);
  assert.equal(await running(), 1);
  await page.goto('about:blank');
  await until(async () => (await running()) === 0, 'the server to drop the request', 5000);
  await until(async () => (await metric('headrace_live_viewers')) === 0, 'the viewer to be gone', 5000);
});

test('a tab that nobody sees gives its place as a viewer back after a minute, and takes one when it is seen again', async () => {
  const viewers = () => metric('headrace_live_viewers');
  const show = (hidden) =>
    page.evaluate((hidden) => {
      Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
      document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
  await visit(quickUrl);
  await ready();
  await page.evaluate(() => {
    const wait = globalThis.setTimeout;
    globalThis.setTimeout = (call, delay) => wait(call, delay / 100);
  });
  await show(true);
  await says(page, '#state', /^Not watched while hidden$/);
  await until(async () => (await viewers()) === 0, 'the place to be given back', 5000);
  await show(false);
  await ready();
  assert.equal(await viewers(), 1);
});

for (const scheme of ['light', 'dark']) {
  test(`axe finds nothing serious in the ${scheme} scheme: at rest, busy, with an answer, with an error, asked for a key`, async () => {
    await visit(quickUrl, { scheme });
    await ready();
    assert.deepEqual(await violations(), [], 'at rest');
    await busy(3, async () => {
      await says(page, '#queue-now', /^1 waiting/);
      assert.deepEqual(await violations(), [], 'busy');
    });
    await ask({ tokens: 4 });
    await says(page, '#outcome', /^4 tokens/);
    assert.deepEqual(await violations(), [], 'with an answer');
    await ask({ tokens: 100_000 });
    await says(page, '#wrong', /\S/);
    assert.deepEqual(await violations(), [], 'with an error');
    await visit(lockedUrl, { scheme });
    await page.waitForSelector('#key', { visible: true });
    assert.deepEqual(await violations(), [], 'asked for a key');
  });
}

/** What axe finds: how bad, which rule, where. */
async function violations() {
  await page.evaluate(axe.source);
  const found = await page.evaluate(async () => (await globalThis.axe.run()).violations);
  const worst = found.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  return worst.map(({ impact, id, nodes }) => `${impact} ${id}: ${nodes.map(({ html }) => html).join(' ')}`);
}

test('the schemes differ, and nothing moves for who wants no motion', async () => {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await visit(quickUrl, { motion: 'reduce' });
  await ready();
  const light = await ground();
  await ask({ tokens: 2000 });
  await says(page, '#answer', /\S/);
  const moving = () =>
    page.evaluate(() => {
      const styles = [...document.querySelectorAll('*')].map((element) => getComputedStyle(element));
      const timed = styles.filter((style) => style.scrollBehavior === 'smooth' || /[1-9]/.test(style.transitionDuration));
      return timed.length + document.getAnimations().length;
    });
  assert.equal(await moving(), 0);
  await page.emulateMediaFeatures([{ name: 'prefers-reduced-motion', value: 'no-preference' }]);
  assert.equal(await moving(), 1, 'the mark where the answer grows');
  await visit(quickUrl, { scheme: 'dark' });
  assert.notEqual(await ground(), light);
});

test('320 pixels are wide enough: nothing is cut off, and nothing scrolls sideways', async () => {
  await visit(quickUrl, { width: 320 });
  await ready();
  // A word that no line can hold.
  await page.$eval('#answer', (answer) => (answer.textContent = 'https://'.concat('wide'.repeat(100))));
  await ask({ tokens: 100_000 });
  await says(page, '#wrong', /\S/);
  const beyond = await page.evaluate(() => {
    const outside = [...document.body.querySelectorAll('*')].filter((element) => element.getBoundingClientRect().right > 320.5);
    return [document.documentElement.scrollWidth, ...outside.map((element) => element.id || element.tagName)];
  });
  assert.deepEqual(beyond, [320]);
});

test('a locked server asks for a key, says when it is wrong, and takes the right one', async () => {
  await visit(lockedUrl);
  await page.waitForSelector('#key', { visible: true });
  assert.equal(await focused(), 'key');
  await page.keyboard.type('wrong');
  await page.keyboard.press('Enter');
  await says(page, '#key-wrong', /does not know this key/);
  assert.equal(await heard('#key-wrong'), 'assertive');
  assert.equal(await focused(), 'key');
  // It is still there to be read when the page might have asked again.
  await pause(2500);
  assert.match(await text(page, '#key-wrong'), /does not know this key/);
  await page.keyboard.type(key);
  await page.keyboard.press('Enter');
  await ready();
  assert.equal(await page.$eval('#key-section', (section) => section.hidden), true);
  await ask({ tokens: 3 });
  await says(page, '#outcome', /^3 tokens/);
});

test('it says that the server is gone, and goes on when it is back', async () => {
  const control = async (wish) => assert.equal((await fetch(`${controlUrl}/${wish}`, { method: 'POST' })).status, 200);
  await visit(quickUrl);
  await ready();
  await ask({ tokens: 5000 });
  await says(page, '#answer', /\S/);
  await control('stop');
  await says(page, '#state', /^Not connected/);
  await says(page, '#rows-now', /^not known$/);
  await says(page, '#wrong', /The server shut down before the answer was finished|The answer broke off after \d+ tokens/);
  assert.equal(await heard('#state'), 'polite');
  await control('start');
  await ready();
  await says(page, '#rows-now', /^0 of/);
  await ask({ tokens: 3 });
  await says(page, '#outcome', /^3 tokens/);
});
