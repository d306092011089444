// Preloaded before a client: refuses every connection to another machine, and fails the run if one was tried.
import net from 'node:net';

const LOCAL = new Set([undefined, 'localhost', '127.0.0.1', '::1']);
const tried = [];

const connect = net.Socket.prototype.connect;
net.Socket.prototype.connect = function (...given) {
  const { host } = net._normalizeArgs(Array.isArray(given[0]) ? given[0] : given)[0];
  if (LOCAL.has(host)) return connect.apply(this, given);
  tried.push(host);
  throw new Error(`a client under test may not reach ${host}`);
};

process.on('exit', () => {
  if (tried.length === 0) return;
  console.error(`the client reached for ${tried}`);
  process.exitCode = 1;
});
