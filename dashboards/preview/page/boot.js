// What Grafana's server writes into its page; the libraries read it when they are loaded, so this comes first.
window.grafanaBootData = { settings: { buildInfo: {}, datasources: {} }, user: { timezone: 'utc' }, navTree: [] };
window.__grafana_public_path__ = '/public/';
