// Once, after `npm ci`: the browser that @sparticuz/chromium carries, with its libraries and its font, into
// node_modules/.chromium.
import { chmod, mkdir } from 'node:fs/promises';

const folder = new URL('node_modules/.chromium/', import.meta.url).pathname;
await mkdir(folder, { recursive: true });
// The package unpacks into the temporary folder, and the libraries only where it believes itself in Amazon's cloud.
process.env.TMPDIR = folder;
process.env.AWS_EXECUTION_ENV = 'AWS_Lambda_nodejs20.x';
const { default: chromium } = await import('@sparticuz/chromium');
await chmod(await chromium.executablePath(), 0o755);
