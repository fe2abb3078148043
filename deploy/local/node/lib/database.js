'use strict';
// The PostgreSQL side: connection pool from Prisma's URL, and the driver adapter the engine calls.
const pg = require('pg');
const { parse: parseArray } = require('postgres-array');
const { bindAdapter } = require('@prisma/driver-adapter-utils');
const { PrismaPg } = require('@prisma/adapter-pg');

const DEFAULT_CONNECTIONS = 10;
const DEFAULT_POOL_TIMEOUT_S = 10;

// URL parameters that the driver knows too. The rest is Prisma's own (connection_limit, pgbouncer …).
const DRIVER_PARAMETERS = new Set([
  'application_name', 'host', 'options', 'sslcert', 'sslkey', 'sslmode', 'sslrootcert',
]);

// Types of catalogue queries that the adapter refuses and the native engine returns as text (object ids
// of pg_type): "char", name, unknown, xid, regclass, regtype, regproc, cid -> text; name[] -> text[].
const TEXT = 25;
const TEXT_ARRAY = 1009;
const NAME_ARRAY = 1003;
const READ_AS = new Map([
  [18, TEXT], [19, TEXT], [24, TEXT], [28, TEXT], [29, TEXT], [705, TEXT], [2205, TEXT], [2206, TEXT],
  [NAME_ARRAY, TEXT_ARRAY],
]);

/**
 * Settings of the connection pool from a Prisma connection URL.
 *
 * `postgresql://user:@/db?host=/socket/dir` names no host before the path. PostgreSQL accepts that, the
 * URL parser does not, so a placeholder goes in; the `host` parameter still wins.
 *
 * @param {string} url
 * @returns {{urls: string[], max: number, poolTimeoutMs: number, schema: string|undefined}} `urls` to try in
 *   turn: without a word about encryption Prisma encrypts when the server can, and else does not
 */
function connectionSettings(url) {
  const parsed = new URL(url.replace(/^(\w+:\/\/(?:[^@/?]*@)?)\//, '$1localhost/'));
  const parameters = parsed.searchParams;
  const max = Number(parameters.get('connection_limit') ?? DEFAULT_CONNECTIONS);
  const poolTimeoutMs = 1000 * Number(parameters.get('pool_timeout') ?? DEFAULT_POOL_TIMEOUT_S);
  const schema = parameters.get('schema') ?? undefined;
  for (const name of [...parameters.keys()]) if (!DRIVER_PARAMETERS.has(name)) parameters.delete(name);
  const withMode = (mode) => {
    const copy = new URL(parsed);
    copy.searchParams.set('sslmode', mode);
    // As libpq means it: `prefer` and `require` encrypt without checking the certificate.
    copy.searchParams.set('uselibpqcompat', 'true');
    return copy.toString();
  };
  const mode = parameters.get('sslmode') ?? 'prefer';
  const overSocket = (parameters.get('host') ?? '').startsWith('/');
  const optional = mode === 'prefer' || mode === 'allow';
  let urls = [withMode(mode)];
  if (overSocket) urls = [withMode('disable')];
  else if (optional) urls = [withMode('prefer'), withMode('disable')];
  return { urls, max, poolTimeoutMs, schema };
}

/** Connect once, to learn which of the URLs the server accepts; throws when it is none of them. */
async function acceptedUrl({ urls, poolTimeoutMs }) {
  const [first, ...others] = urls;
  const client = new pg.Client({ connectionString: first, connectionTimeoutMillis: poolTimeoutMs });
  try {
    await client.connect();
    await client.end();
    return first;
  } catch (error) {
    if (others.length === 0 || !/does not support SSL/.test(error.message)) throw error;
    return acceptedUrl({ urls: others, poolTimeoutMs });
  }
}

/** Present catalogue types under a type that the adapter can read. */
function readableTypes(result) {
  result.fields.forEach((field, index) => {
    const replacement = READ_AS.get(field.dataTypeID);
    if (replacement === undefined) return;
    if (field.dataTypeID === NAME_ARRAY) {
      // The driver has no parser for name[], so the value is still PostgreSQL's array text.
      for (const row of result.rows) if (typeof row[index] === 'string') row[index] = parseArray(row[index]);
    }
    field.dataTypeID = replacement;
  });
}

/** Let every query of the adapter (pool, connection, transaction) pass through `readableTypes`. */
function patchQueryable() {
  const queryable = Object.getPrototypeOf(PrismaPg.prototype); // base class, which is not exported
  const performIO = queryable.performIO;
  queryable.performIO = async function performReadableIO(query) {
    const outcome = await performIO.call(this, query);
    if (outcome.ok && outcome.value.fields) readableTypes(outcome.value);
    return outcome;
  };
}

const UNREACHABLE_CODES = new Set([
  'ECONNREFUSED', 'ECONNRESET', 'EHOSTUNREACH', 'ENETUNREACH', 'ENOENT', 'ENOTFOUND', 'EPIPE', 'ETIMEDOUT',
]);

/**
 * What the native engine says about a failure that the driver met before PostgreSQL could answer.
 *
 * @param {Error & {code?: string}} error
 * @returns {{error_code?: string, message: string}} Prisma's error code where there is one
 */
function driverFailure(error) {
  const detail = error?.message || error?.code || String(error);
  if (/timeout exceeded when trying to connect/.test(detail)) {
    return { error_code: 'P2024', message: `Timed out fetching a new connection from the connection pool: ${detail}` };
  }
  if (UNREACHABLE_CODES.has(error?.code) || /^Connection terminated/.test(detail)) {
    return { error_code: 'P1001', message: `Can't reach database server: ${detail}` };
  }
  return { message: `Database driver: ${detail}` };
}

/**
 * @param {string} url Prisma connection URL
 * @param {(message: string) => void} onIdleError told when an idle connection breaks
 * @returns {Promise<{adapter: object, pool: pg.Pool}>}
 */
async function openDatabase(url, onIdleError) {
  patchQueryable();
  const settings = connectionSettings(url);
  const pool = new pg.Pool({
    connectionString: await acceptedUrl(settings),
    max: settings.max,
    connectionTimeoutMillis: settings.poolTimeoutMs,
  });
  pool.on('error', (error) => onIdleError(String(error))); // unheard, it would end the process
  const adapter = bindAdapter(new PrismaPg(pool, settings.schema ? { schema: settings.schema } : undefined));
  return { pool, adapter };
}

module.exports = { connectionSettings, driverFailure, openDatabase };
