// Data sources for the page: a Prometheus, and the SQL of the committed panels, both asked through our server.
import { FieldType, dateTime, toDataFrame } from '@grafana/data';
import { RuntimeDataSource, sceneGraph } from '@grafana/scenes';

const MINIMUM_STEP_S = 1;

async function json(url, options) {
  const answer = await fetch(url, options);
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    throw new Error(`${url}: ${found.error ?? answer.status}`);
  }
  return found;
}

// Several values of a variable are alternatives of a regular expression, as in Grafana's own data source.
function matchers(value) {
  return Array.isArray(value) ? `(${value.map((v) => v.replace(/[.*+?^${}()|[\]\\]/g, '\\\\$&')).join('|')})` : value;
}

function filled(object, text, format, scoped) {
  return sceneGraph.interpolate(object, text, scoped, format);
}

function objectOf(request) {
  return request.scopedVars.__sceneObject.value.valueOf();
}

function legend(target, labels) {
  if (target.legendFormat && target.legendFormat !== '__auto') {
    return target.legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => labels[name] ?? '');
  }
  return Object.entries(labels).map(([name, value]) => `${name}="${value}"`).join(', ');
}

export class Prometheus extends RuntimeDataSource {
  constructor(scrapeIntervalS) {
    super('prometheus', 'prometheus');
    this.name = 'Prometheus';
    this.scrapeIntervalS = scrapeIntervalS;
  }

  // $__rate_interval as Grafana computes it: four scrapes, or a step and a scrape.
  #expression(request, text, stepS) {
    const rate = Math.max(4 * this.scrapeIntervalS, stepS + this.scrapeIntervalS);
    const seconds = (request.range.to.valueOf() - request.range.from.valueOf()) / 1000;
    return filled(objectOf(request), text, matchers, {
      ...request.scopedVars,
      __rate_interval: { value: `${rate}s`, text: `${rate}s` },
      __range: { value: `${Math.ceil(seconds)}s`, text: `${Math.ceil(seconds)}s` },
    });
  }

  async query(request) {
    const start = request.range.from.valueOf() / 1000;
    const end = request.range.to.valueOf() / 1000;
    const step = Math.max(MINIMUM_STEP_S, Math.ceil((request.intervalMs ?? 15000) / 1000));
    const frames = await Promise.all(
      request.targets.map(async (target) => {
        const query = this.#expression(request, target.expr, step);
        const parameters = target.instant ? { query, time: end } : { query, start, end, step };
        const path = target.instant ? 'query' : 'query_range';
        const answer = await json(`/api/prometheus/${path}`, {
          method: 'POST',
          body: new URLSearchParams(parameters),
        });
        return target.instant ? table(target, answer.data.result) : answer.data.result.map((s) => series(target, s));
      })
    );
    return { data: frames.flat() };
  }

  async metricFindQuery(query, request) {
    const [, selector, label] = /^label_values\((.*), *(\w+)\)$/s.exec(query);
    const text = filled(objectOf(request), selector, matchers, request.scopedVars);
    const range = { start: request.range.from.valueOf() / 1000, end: request.range.to.valueOf() / 1000 };
    const parameters = new URLSearchParams({ 'match[]': text, ...range });
    const answer = await json(`/api/prometheus/label/${label}/values?${parameters}`);
    return answer.data.map((value) => ({ text: value, value }));
  }
}

function series(target, { metric, values }) {
  const { __name__, ...labels } = metric;
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: values.map(([time]) => time * 1000) },
      {
        name: 'Value',
        type: FieldType.number,
        labels,
        config: { displayNameFromDS: legend(target, metric) },
        values: values.map(([, value]) => Number(value)),
      },
    ],
  });
}

function table(target, result) {
  const names = [...new Set(result.flatMap(({ metric }) => Object.keys(metric)))].sort();
  return [
    toDataFrame({
      refId: target.refId,
      fields: [
        { name: 'Time', type: FieldType.time, values: result.map(({ value }) => value[0] * 1000) },
        ...names.map((name) => ({
          name,
          type: FieldType.string,
          values: result.map(({ metric }) => metric[name] ?? ''),
        })),
        { name: 'Value', type: FieldType.number, values: result.map(({ value }) => Number(value[1])) },
      ],
    }),
  ];
}

export class Postgres extends RuntimeDataSource {
  constructor() {
    super('grafana-postgresql-datasource', 'postgres');
    this.name = 'PostgreSQL';
  }

  async #ask(sql, request) {
    const groups = sceneGraph.lookupVariable('model_group', objectOf(request))?.getValue() ?? [];
    return json('/api/sql', {
      method: 'POST',
      body: JSON.stringify({
        sql,
        from: dateTime(request.range.from).toISOString(),
        to: dateTime(request.range.to).toISOString(),
        model_group: [groups].flat(),
      }),
    });
  }

  async query(request) {
    const answers = await Promise.all(request.targets.map((target) => this.#ask(target.rawSql, request)));
    return { data: answers.flatMap((answer, n) => rows(request.targets[n], answer)) };
  }

  async metricFindQuery(query, request) {
    const { rows: found } = await this.#ask(query, request);
    return found.map(([value]) => ({ text: value, value }));
  }
}

const TYPES = { time: FieldType.time, number: FieldType.number, boolean: FieldType.boolean, string: FieldType.string };

function rows(target, { columns, rows: found }) {
  const column = (n) => found.map((row) => row[n]);
  if (target.format !== 'time_series' || !columns.some(({ type }) => type === 'string')) {
    return [
      toDataFrame({
        refId: target.refId,
        fields: columns.map(({ name, type }, n) => ({ name, type: TYPES[type], values: column(n) })),
      }),
    ];
  }
  // Long to wide, as Grafana's SQL data sources do: a frame for each value of the column of names.
  const at = Object.fromEntries(columns.map(({ type }, n) => [type, n]));
  const names = [...new Set(column(at.string))];
  return names.map((name) => {
    const own = found.filter((row) => row[at.string] === name);
    return toDataFrame({
      refId: target.refId,
      fields: [
        { name: 'Time', type: FieldType.time, values: own.map((row) => row[at.time]) },
        {
          name: 'Value',
          type: FieldType.number,
          config: { displayNameFromDS: name },
          values: own.map((row) => row[at.number]),
        },
      ],
    });
  });
}
