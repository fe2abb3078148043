'use strict';
// The Python client speaks Prisma's GraphQL protocol; the WASM engine understands only the JSON protocol.
// This module turns one into the other. Both carry the same operations, so it is a change of notation, with
// one exception: a string given for a Json field. GraphQL has it parsed as JSON text, the JSON protocol
// stores it as a JSON *string* unless it is tagged {"$type": "Json"}, hence the look at field types.
const { Kind, parse } = require('graphql');

const ACTIONS = [
  'findUnique', 'findFirst', 'findMany', 'createOne', 'createMany', 'updateOne', 'updateMany',
  'upsertOne', 'deleteOne', 'deleteMany', 'aggregate', 'groupBy',
];
const OPERATION = new RegExp(`^(${ACTIONS.join('|')})(\\w+?)(OrThrow)?$`);
const RAW_ACTIONS = new Set(['queryRaw', 'executeRaw']);

// Operators inside a filter or update of a Json field whose operand is itself JSON. The others (`path`,
// `string_contains`, `mode` …) take plain strings.
const JSON_OPERATORS = new Set([
  'set', 'push', 'equals', 'not', 'in', 'notIn', 'lt', 'lte', 'gt', 'gte',
  'array_contains', 'array_starts_with', 'array_ends_with',
]);

/** One GraphQL literal as a value of the JSON protocol. */
function literal(node) {
  switch (node.kind) {
    case Kind.STRING:
    case Kind.BOOLEAN:
      return node.value;
    case Kind.NULL:
      return null;
    case Kind.INT: {
      const number = Number(node.value);
      return Number.isSafeInteger(number) ? number : { $type: 'BigInt', value: node.value };
    }
    case Kind.FLOAT:
      return Number(node.value);
    case Kind.ENUM:
      return { $type: 'Enum', value: node.value };
    case Kind.LIST:
      return node.values.map(literal);
    case Kind.OBJECT:
      return Object.fromEntries(node.fields.map((field) => [field.name.value, literal(field.value)]));
    default:
      throw new Error(`the query holds a GraphQL ${node.kind}, which this engine does not translate`);
  }
}

const isPlainObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value) && !value.$type;

/** Tag a string as JSON text; lists element by element; everything else is already a value. */
function asJson(value) {
  if (typeof value === 'string') return { $type: 'Json', value };
  return Array.isArray(value) ? value.map(asJson) : value;
}

/** The argument of a Json field: the value itself, or an object of operators. */
function jsonArgument(value) {
  if (!isPlainObject(value)) return asJson(value);
  return Object.fromEntries(
    Object.entries(value).map(([key, operand]) => [key, JSON_OPERATORS.has(key) ? asJson(operand) : operand]),
  );
}

/** Builds JSON-protocol queries for the models of one schema. */
class RequestTranslator {
  /** @param {Map<string, Map<string, string>>} models from `readModels` */
  constructor(models) {
    this.models = models;
  }

  /**
   * @param {string} text GraphQL document with one operation and one top-level field
   * @returns {{query: object, raw: boolean}} JSON-protocol query; raw when it is SQL
   */
  translate(text) {
    const document = parse(text, { noLocation: true });
    const field = document.definitions[0].selectionSet.selections[0];
    const name = field.name.value;
    if (RAW_ACTIONS.has(name)) {
      return { raw: true, query: { action: name, query: { arguments: this.#plainArguments(field), selection: {} } } };
    }
    const match = OPERATION.exec(name);
    if (!match || !this.models.has(match[2])) throw new Error(`unknown operation ${name}`);
    const [, action, modelName, orThrow = ''] = match;
    return {
      raw: false,
      query: {
        modelName,
        action: action + orThrow,
        query: { arguments: this.#arguments(field, modelName), selection: this.#selection(field, modelName) },
      },
    };
  }

  #plainArguments(field) {
    return Object.fromEntries((field.arguments ?? []).map((arg) => [arg.name.value, literal(arg.value)]));
  }

  #arguments(field, modelName) {
    return this.#tagged(this.#plainArguments(field), modelName);
  }

  #selection(field, modelName) {
    const chosen = {};
    for (const child of field.selectionSet?.selections ?? []) {
      const name = child.name.value;
      if (!child.selectionSet && !child.arguments?.length) {
        chosen[name] = true;
        continue;
      }
      // A relation leads to another model; `_count`, `_sum` … stay with the model they are asked of.
      const type = this.models.get(modelName)?.get(name);
      const childModel = this.models.has(type) ? type : modelName;
      chosen[name] = { arguments: this.#arguments(child, childModel), selection: this.#selection(child, childModel) };
    }
    return chosen;
  }

  /** Walk the arguments beside the schema, so that strings meant for Json fields get their tag. */
  #tagged(value, modelName) {
    if (Array.isArray(value)) return value.map((item) => this.#tagged(item, modelName));
    if (!isPlainObject(value)) return value;
    const fields = this.models.get(modelName);
    const result = {};
    for (const [key, item] of Object.entries(value)) {
      const type = fields?.get(key);
      if (type === 'Json') result[key] = jsonArgument(item);
      else if (type !== undefined && this.models.has(type)) result[key] = this.#tagged(item, type);
      else if (type !== undefined) result[key] = item;
      else result[key] = this.#tagged(item, modelName); // where, data, create, AND, some, is, …
    }
    return result;
  }
}

module.exports = { RequestTranslator };
