'use strict';
// What the translation has to know about a Prisma schema: its models, and the type of every field.

/**
 * Read the declarations of a Prisma schema.
 *
 * Only the line shape `name Type …` inside `model` blocks matters here; validation of the schema is the
 * engine's own job, which gets the same text.
 *
 * @param {string} text Prisma schema
 * @returns {Map<string, Map<string, string>>} model name -> field name -> type name without `?` or `[]`
 */
function readModels(text) {
  const models = new Map();
  let fields = null;
  for (const rawLine of text.split('\n')) {
    const line = rawLine.trim();
    const opening = /^model\s+(\w+)\s*\{/.exec(line);
    if (opening) {
      fields = new Map();
      models.set(opening[1], fields);
    } else if (line.startsWith('}')) {
      fields = null;
    } else if (fields !== null) {
      const field = /^(\w+)\s+(\w+)/.exec(line);
      if (field) fields.set(field[1], field[2]);
    }
  }
  return models;
}

/**
 * Exchange the generator block for one under which the engine accepts a JavaScript database driver.
 *
 * The schema names the Python generator, and only the JavaScript generator knows the preview feature
 * `driverAdapters`, without which the engine refuses to be built on a driver from outside.
 *
 * @param {string} text Prisma schema
 * @returns {string} the schema to construct the engine with
 */
function forDriverAdapters(text) {
  const generator = 'generator client {\n  provider = "prisma-client-js"\n  previewFeatures = ["driverAdapters"]\n}';
  const pattern = /^\s*generator\s+\w+\s*\{[^}]*\}/m;
  return pattern.test(text) ? text.replace(pattern, `\n${generator}`) : `${generator}\n${text}`;
}

module.exports = { readModels, forDriverAdapters };
