"""Telemetry pipeline: a week of gateway traffic to four figures and a sizing plan."""
