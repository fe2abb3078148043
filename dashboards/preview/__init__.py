"""The committed dashboards in a browser without a Grafana server: ``python -m dashboards.preview``.

Grafana's server is in no package registry, its front-end libraries are. A page built from them (folder
``page``) draws the panels with Grafana's own code for queries, variables, units, thresholds and legends; a
small server hands it the JSON, a Prometheus and the SQL of the panels. What is ours instead of Grafana's: the
loader of the JSON, the shells of the four panel plugins, and the data sources.
"""
