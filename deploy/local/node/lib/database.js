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
 * @returns {{pool: object, schema: string|undefined}}
 */
function connectionSettings(url) {
  const parsed = new URL(url.replace(/^(\w+:\/\/(?:[^@/?]*@)?)\//, '$1localhost/'));
  const parameters = parsed.searchParams;
  const max = Number(parameters.get('connection_limit') ?? DEFAULT_CONNECTIONS);
  const timeout_s = Number(parameters.get('pool_timeout') ?? DEFAULT_POOL_TIMEOUT_S);
  const schema = parameters.get('schema') ?? undefined;
  for (const name of [...parameters.keys()]) if (!DRIVER_PARAMETERS.has(name)) parameters.delete(name);
  // Prisma means sslmode as libpq does: `prefer` and `require` encrypt without checking the certificate.
  if (parameters.has('sslmode')) parameters.set('uselibpqcompat', 'true');
  return {
    pool: { connectionString: parsed.toString(), max, connectionTimeoutMillis: timeout_s * 1000 },
    schema,
  };
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

/**
 * @param {string} url Prisma connection URL
 * @param {(message: string) => void} onIdleError told when an idle connection breaks
 * @returns {{adapter: object, pool: pg.Pool}}
 */
function openDatabase(url, onIdleError) {
  patchQueryable();
  const { pool: poolSettings, schema } = connectionSettings(url);
  const pool = new pg.Pool(poolSettings);
  pool.on('error', (error) => onIdleError(String(error))); // unheard, it would end the process
  return { pool, adapter: bindAdapter(new PrismaPg(pool, schema ? { schema } : undefined)) };
}

module.exports = { connectionSettings, openDatabase };
