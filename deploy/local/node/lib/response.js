'use strict';
// Answers of the WASM engine in the shapes the Python client reads.

/** Drop the JSON protocol's type tags: the client knows the types from its own models. */
function untagged(value) {
  if (Array.isArray(value)) return value.map(untagged);
  if (value === null || typeof value !== 'object') return value;
  if (typeof value.$type === 'string' && 'value' in value) {
    if (value.$type !== 'BigInt') return value.value; // DateTime, Decimal, Json, Bytes, Enum: text
    const number = Number(value.value);
    return Number.isSafeInteger(number) ? number : value.value;
  }
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, untagged(item)]));
}

function labelledValue(type, value) {
  if (value === null || value === undefined) return { prisma__type: 'null', prisma__value: null };
  if (type.endsWith('-array')) {
    const itemType = type.slice(0, -'-array'.length);
    return { prisma__type: 'array', prisma__value: value.map((item) => labelledValue(itemType, item)) };
  }
  return { prisma__type: type, prisma__value: value };
}

/**
 * Rows of a raw query as the client's release expects them.
 *
 * Prisma 5.17 answers {columns, types, rows}; Python clients before 0.12 were written for one object per
 * row whose values carry their type.
 */
function rawRows(result, labelled) {
  if (!labelled || !Array.isArray(result?.columns)) return result; // executeRaw answers a bare count
  const { columns, types, rows } = result;
  return rows.map((row) =>
    Object.fromEntries(row.map((value, index) => [columns[index], labelledValue(types[index], value)])),
  );
}

/**
 * @param {object} answer what the engine returned, parsed
 * @param {{raw: boolean, labelledRows: boolean}} options
 * @returns {object} `{data: {result}}` or the engine's `{errors}`
 */
function clientAnswer(answer, { raw, labelledRows }) {
  if (answer.errors) return answer;
  const [result] = Object.values(answer.data);
  return { data: { result: raw ? rawRows(result, labelledRows) : untagged(result) } };
}

/** An exception as the `errors` list of an answer; the engine throws its own errors as JSON text. */
function errorAnswer(error) {
  const message = error instanceof Error ? error.message : String(error);
  let userFacing = { is_panic: false, message, backtrace: null };
  try {
    const parsed = JSON.parse(message);
    if (parsed?.error_code) userFacing = parsed;
  } catch {
    // plain text: reported as it is
  }
  return { errors: [{ error: message, user_facing_error: userFacing }] };
}

/** Answer of a transaction endpoint: the engine reports failure as a bare error object. */
function transactionAnswer(answer) {
  if (answer?.errors) return { errors: answer.errors };
  if (answer?.error_code) return { errors: [{ error: answer.message, user_facing_error: answer }] };
  return answer ?? {};
}

module.exports = { clientAnswer, errorAnswer, transactionAnswer };
