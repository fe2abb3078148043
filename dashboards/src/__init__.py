"""Builders of the dashboards, and their checks. ``python -m dashboards.src.build`` writes the JSON."""
