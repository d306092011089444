// Headless Chromium for the checks: nothing of the user's, and no way to any other machine.
import puppeteer from 'puppeteer-core';

const UNPACKED = new URL('node_modules/.chromium/', import.meta.url).pathname;
const OTHER = process.env.CHROMIUM; // instead of the unpacked one, where that does not run
export const LIMIT = 60_000; // ms that any wait of the checks may take; a busy machine needs some of it

export function launch() {
  return puppeteer.launch({
    executablePath: OTHER || `${UNPACKED}chromium`,
    headless: OTHER ? true : 'shell',
    // Chromium ends when this pipe does: it never outlives its script, however that ends.
    pipe: true,
    args: [
      '--no-sandbox', // which root may not have; the pages are our own
      '--disable-gpu',
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
    ],
    env: {
      ...process.env,
      ...(OTHER ? {} : { LD_LIBRARY_PATH: `${UNPACKED}al2023/lib` }),
      FONTCONFIG_FILE: new URL('fonts.conf', import.meta.url).pathname,
    },
  });
}

/**
 * The live page of a server, in a window that shares nothing with any other. `page.problems` holds what the console and the
 * page complained of, `page.asked` the address of every request.
 */
export async function open(browser, address, { scheme = 'light', width = 1200, motion = 'no-preference' } = {}) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.setDefaultTimeout(LIMIT);
  page.problems = [];
  page.asked = [];
  page.on('console', (message) => ['error', 'warn'].includes(message.type()) && page.problems.push(message.text()));
  page.on('pageerror', (error) => page.problems.push(String(error)));
  page.on('request', (request) => page.asked.push(request.url()));
  await page.setViewport({ width, height: 800 });
  await page.emulateMediaFeatures([
    { name: 'prefers-color-scheme', value: scheme },
    { name: 'prefers-reduced-motion', value: motion },
  ]);
  await page.goto(address);
  return page;
}

export const text = (page, selector) => page.$eval(selector, (element) => element.textContent);

/** Waits until the text of an element is as `pattern` says, and gives it. */
export async function says(page, selector, pattern) {
  const match = ({ selector, source, flags }) => {
    const said = document.querySelector(selector).textContent;
    return new RegExp(source, flags).test(said) && said;
  };
  try {
    const wanted = { selector, source: pattern.source, flags: pattern.flags };
    return await (await page.waitForFunction(match, {}, wanted)).jsonValue();
  } catch (error) {
    throw new Error(`${selector} never said ${pattern}; it says ${JSON.stringify(await text(page, selector))}`, { cause: error });
  }
}
