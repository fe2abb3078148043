'use strict';
// Stands in for Prisma's `query-engine` binary where that cannot be downloaded: same command line, same
// environment, same HTTP interface towards the Python client; the engine itself is Prisma's own WASM build.
//
// Interface (Prisma 5.17): `query-engine --version`, `query-engine -p PORT`, PRISMA_DML_PATH,
// DATABASE_URL or OVERWRITE_DATASOURCES; GET /status, POST /, POST /transaction/start,
// POST /transaction/<id>/commit|rollback, GET /metrics. Ends on SIGINT or SIGTERM.
const COMMIT = '393aa359c9ad4a4bb28630fb5613f9c281cde053'; // of the WASM build in @prisma/client 5.17.0

if (process.argv.includes('--version')) {
  process.stdout.write(`query-engine ${COMMIT}\n`);
  process.exit(0);
}

const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const { Engine } = require('./lib/engine.js');
const { errorAnswer } = require('./lib/response.js');

const STOP_LIMIT_MS = 3_000;

process.title = 'query-engine-wasm'; // LiteLLM looks for orphaned engines by this prefix

const log = (message) => process.stderr.write(`${JSON.stringify({ level: 'ERROR', fields: { message } })}\n`);

function portArgument(argv) {
  const index = argv.findIndex((argument) => argument === '-p' || argument === '--port');
  const port = Number(argv[index + 1]);
  if (index < 0 || !Number.isInteger(port)) throw new Error('say where to listen: -p PORT');
  return port;
}

function databaseUrl(environment) {
  const overrides = JSON.parse(environment.OVERWRITE_DATASOURCES ?? '[]');
  const url = overrides[0]?.url ?? environment.DATABASE_URL;
  if (!url) throw new Error('neither DATABASE_URL nor OVERWRITE_DATASOURCES names a database');
  return url;
}

/** Python clients before 0.12 read raw rows by the word `prisma__type`; theirs lies beside the schema. */
function readsLabelledRows(schemaPath) {
  try {
    return fs.readFileSync(path.join(path.dirname(schemaPath), '_raw_query.py'), 'utf8').includes('prisma__type');
  } catch {
    return false;
  }
}

async function readBody(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString('utf8');
}

/** @returns {Promise<object|string|undefined>} the answer, or undefined when there is no such endpoint */
async function route(engine, request) {
  const url = new URL(request.url, 'http://engine');
  const body = await readBody(request);
  if (request.method === 'GET' && url.pathname === '/status') return { status: 'ok' };
  if (request.method === 'GET' && url.pathname === '/metrics') {
    // The WASM build keeps no metrics; an empty answer in the format asked for.
    return url.searchParams.get('format') === 'prometheus' ? '' : { counters: [], gauges: [], histograms: [] };
  }
  if (request.method !== 'POST') return undefined;
  if (url.pathname === '/') return engine.query(JSON.parse(body), request.headers['x-transaction-id']);
  if (url.pathname === '/transaction/start') return engine.startTransaction(body);
  const ending = /^\/transaction\/([^/]+)\/(commit|rollback)$/.exec(url.pathname);
  if (!ending) return undefined;
  return ending[2] === 'commit' ? engine.commitTransaction(ending[1]) : engine.rollbackTransaction(ending[1]);
}

async function answer(engine, request, response) {
  let content;
  try {
    content = await route(engine, request);
  } catch (error) {
    if (process.env.QUERY_ENGINE_DEBUG) log(`${error.stack}`);
    content = errorAnswer(error); // status 200: the client looks at `errors`, not at the status
  }
  const text = typeof content === 'string' ? content : JSON.stringify(content ?? {});
  response.writeHead(content === undefined ? 404 : 200, {
    'content-type': typeof content === 'string' ? 'text/plain' : 'application/json',
  });
  response.end(text);
}

async function main() {
  const port = portArgument(process.argv);
  const schemaPath = process.env.PRISMA_DML_PATH;
  const engine = await Engine.open({
    schema: fs.readFileSync(schemaPath, 'utf8'),
    url: databaseUrl(process.env),
    labelledRows: readsLabelledRows(schemaPath),
    log,
    logQueries: Boolean(process.env.LOG_QUERIES),
  });
  const server = http.createServer((request, response) => void answer(engine, request, response));
  server.keepAliveTimeout = 120_000; // longer than the client keeps its idle connections
  server.listen(port, 'localhost'); // as a name: the client connects to `localhost`, IPv4 or IPv6
  const stop = async () => {
    setTimeout(() => process.exit(0), STOP_LIMIT_MS).unref(); // a hanging query must not keep us alive
    server.close();
    await engine.disconnect().catch(() => undefined); // nothing left to tell it to
    process.exit(0);
  };
  process.once('SIGINT', stop);
  process.once('SIGTERM', stop);
}

main().catch((error) => {
  log(`query engine did not start: ${error.stack ?? error}`);
  process.exit(1);
});
