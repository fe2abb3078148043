'use strict';
// Prisma's query engine, compiled to WebAssembly, as @prisma/client ships it.
const fs = require('node:fs');
const path = require('node:path');
const { readModels, forDriverAdapters } = require('./datamodel.js');
const { driverFailure, openDatabase } = require('./database.js');
const { RequestTranslator } = require('./request.js');
const { clientAnswer, transactionAnswer } = require('./response.js');

const DRIVER_FAILED = 'P2036'; // "error in external connector": the cause is kept on our side, under an id
const NO_TRACE = '{}'; // the engine wants a tracing context with every call

function loadBindings() {
  const runtime = path.join(path.dirname(require.resolve('@prisma/client/package.json')), 'runtime');
  const bindings = require(path.join(runtime, 'query_engine_bg.postgresql.js'));
  const module = new WebAssembly.Module(fs.readFileSync(path.join(runtime, 'query_engine_bg.postgresql.wasm')));
  const instance = new WebAssembly.Instance(module, { './query_engine_bg.js': bindings });
  bindings.__wbg_set_wasm(instance.exports);
  return bindings;
}

/** The engine behind the HTTP interface: GraphQL-protocol requests in, client-shaped answers out. */
class Engine {
  #adapter;
  #engine;
  #translator;
  #pool;
  #labelledRows;

  /**
   * @param {object} options
   * @param {string} options.schema Prisma schema text
   * @param {string} options.url database URL
   * @param {boolean} options.labelledRows raw rows in the shape of Python clients before 0.12
   * @param {(line: string) => void} options.log receives problems and, if asked for, queries
   * @param {boolean} options.logQueries
   * @returns {Promise<Engine>} connected; rejects when the database cannot be reached
   */
  static async open(options) {
    const engine = new Engine(options, await openDatabase(options.url, options.log));
    await engine.#engine.connect(NO_TRACE);
    return engine;
  }

  /** Use `Engine.open`. */
  constructor({ schema, labelledRows, log, logQueries }, { adapter, pool }) {
    this.#adapter = adapter;
    this.#pool = pool;
    this.#labelledRows = labelledRows;
    this.#translator = new RequestTranslator(readModels(schema));
    const { QueryEngine } = loadBindings();
    this.#engine = new QueryEngine(
      {
        datamodel: forDriverAdapters(schema),
        env: process.env,
        logQueries,
        logLevel: logQueries ? 'debug' : 'error',
        ignoreEnvVarErrors: true,
        datasourceOverrides: {},
        configDir: '.',
        engineProtocol: 'json',
      },
      (line) => { if (logQueries) log(line); },
      adapter,
    );
  }

  async disconnect() {
    await this.#engine.disconnect(NO_TRACE);
    await this.#pool.end();
  }

  /**
   * @param {object} body `{query}` or `{batch: [{query}, …], transaction}`
   * @param {string|undefined} transactionId of an open interactive transaction
   */
  async query(body, transactionId) {
    if (body.batch) return this.#batch(body, transactionId);
    const { query, raw } = this.#translator.translate(body.query);
    return clientAnswer(await this.#run(query, transactionId), { raw, labelledRows: this.#labelledRows });
  }

  async #batch(body, transactionId) {
    const requests = body.batch.map((item) => this.#translator.translate(item.query));
    const batch = { batch: requests.map((request) => request.query) };
    if (body.transaction) batch.transaction = {};
    const answer = await this.#run(batch, transactionId);
    if (!answer.batchResult) return answer; // one failed: errors for the whole batch
    return {
      batchResult: answer.batchResult.map((item, index) =>
        clientAnswer(item, { raw: requests[index].raw, labelledRows: this.#labelledRows })),
    };
  }

  async #run(query, transactionId) {
    return this.#explained(JSON.parse(await this.#engine.query(JSON.stringify(query), NO_TRACE, transactionId)));
  }

  /** Put the cause of a driver failure, which the engine knows only by number, into its error. */
  #explained(answer) {
    for (const error of answer.errors ?? []) {
      const userFacing = error.user_facing_error;
      if (userFacing?.error_code !== DRIVER_FAILED) continue;
      const cause = this.#adapter.errorRegistry.consumeError(userFacing.meta?.id)?.error;
      if (cause === undefined) continue;
      error.error = driverFailure(cause).message;
      error.user_facing_error = { is_panic: false, meta: {}, ...driverFailure(cause) };
    }
    return answer;
  }

  /** @param {string} options JSON text as the client sent it: max_wait, timeout, isolation_level */
  async startTransaction(options) {
    return transactionAnswer(JSON.parse(await this.#engine.startTransaction(options, NO_TRACE)));
  }

  async commitTransaction(id) {
    return transactionAnswer(JSON.parse(await this.#engine.commitTransaction(id, NO_TRACE)));
  }

  async rollbackTransaction(id) {
    return transactionAnswer(JSON.parse(await this.#engine.rollbackTransaction(id, NO_TRACE)));
  }
}

module.exports = { Engine };
