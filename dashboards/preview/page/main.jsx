// Entry: draws the dashboard that the address names, from the JSON that ships.
import './boot.js';
import { ThemeContext, createTheme } from '@grafana/data';
import { LocationServiceProvider, locationService } from '@grafana/runtime';
import { SceneQueryRunner, UrlSyncContextProvider, sceneGraph } from '@grafana/scenes';
import { GlobalStyles, PortalContainer } from '@grafana/ui';
import { createRoot } from 'react-dom/client';
import { Router } from 'react-router-dom';
import { scene } from './board.jsx';
import { register } from './panels.jsx';
import { start } from './services.js';
import { Postgres, Prometheus } from './sources.js';

const { boards, scrapeIntervalS } = window.preview;

async function main() {
  const dark = window.matchMedia('(prefers-color-scheme: dark)').matches;
  const chosen = createTheme({ colors: { mode: dark ? 'dark' : 'light' } });
  const sources = { prometheus: new Prometheus(scrapeIntervalS), 'grafana-postgresql-datasource': new Postgres() };
  await start(chosen, sources);
  register();
  const uid = window.location.pathname.split('/').pop();
  const board = await (await fetch(`/api/dashboards/${uid}`)).json();
  document.title = board.title;
  const drawn = scene(board, boards.filter((other) => other.uid !== uid));
  // For tests: the state of each panel's queries, empty until it asks.
  window.preview.states = () =>
    sceneGraph.findAllObjects(drawn, (o) => o instanceof SceneQueryRunner).map((o) => o.state.data?.state ?? '');
  createRoot(document.getElementById('root')).render(
    <ThemeContext.Provider value={chosen}>
      <GlobalStyles />
      <LocationServiceProvider service={locationService}>
        <Router location={locationService.getLocation()} navigator={locationService.getHistory()}>
        <main style={{ padding: 8, boxSizing: 'border-box', minHeight: '100vh', display: 'flex', flexDirection: 'column' }}>
          <h1 style={{ fontSize: 20 }}>{board.title}</h1>
          <p>{board.description}</p>
          <UrlSyncContextProvider scene={drawn} updateUrlOnInit={false}>
            <drawn.Component model={drawn} />
          </UrlSyncContextProvider>
        </main>
        </Router>
      </LocationServiceProvider>
      <PortalContainer />
    </ThemeContext.Provider>
  );
}

main();
