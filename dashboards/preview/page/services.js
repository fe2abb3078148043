// What Grafana's own front end sets up before a dashboard: theme, events, data sources, request runner.
// None of it is published as a package, so each is the smallest thing that the libraries accept.
import { EventBusSrv, LoadingState, preProcessPanelData, setTimeZoneResolver } from '@grafana/data';
import { initPluginTranslations } from '@grafana/i18n';
import { config, setAppEvents, setDataSourceSrv, setPluginImportUtils, setRunRequest } from '@grafana/runtime';
import { catchError, from, isObservable, map, of, startWith } from 'rxjs';

function runRequest(source, request) {
  const asked = source.query(request);
  return (isObservable(asked) ? asked : from(asked)).pipe(
    map((answer) =>
      preProcessPanelData({
        state: LoadingState.Done,
        series: answer.data,
        annotations: [],
        timeRange: request.range,
        request,
      })
    ),
    catchError((error) => {
      console.error(error.message);
      return of({ state: LoadingState.Error, series: [], timeRange: request.range, request, errors: [error], error });
    }),
    startWith({ state: LoadingState.Loading, series: [], timeRange: request.range, request })
  );
}

export async function start(chosen, sources) {
  await initPluginTranslations('grafana', []);
  config.theme2 = chosen;
  setAppEvents(new EventBusSrv());
  setTimeZoneResolver(() => 'utc');
  setRunRequest(runRequest);
  setPluginImportUtils({
    importPanelPlugin: (id) => Promise.reject(new Error(`no panel plugin ${id}`)),
    getPanelPluginFromCache: () => undefined,
  });
  const known = Object.values(sources);
  const named = (ref, scoped) => {
    const uid = typeof ref === 'string' ? ref : ref?.uid ?? '';
    const name = /^\$\{(\w+)\}$/.exec(uid)?.[1];
    if (!name) {
      return known.find((source) => source.uid === uid);
    }
    const object = scoped?.__sceneObject?.value?.valueOf?.();
    return known.find((source) => source.uid === object?.lookup?.(name)) ?? sources[ref.type];
  };
  setDataSourceSrv({
    get: (ref, scoped) => {
      const source = named(ref, scoped);
      return source ? Promise.resolve(source) : Promise.reject(new Error(`no data source ${JSON.stringify(ref)}`));
    },
    getInstanceSettings: (ref, scoped) => named(ref, scoped),
    getList: ({ pluginId }) =>
      known.filter((source) => source.type === pluginId).map((source) => ({ name: source.name, uid: source.uid })),
    reload: () => undefined,
  });
}
