"""Grafana dashboards, Prometheus rules and alerts, and what checks them."""
