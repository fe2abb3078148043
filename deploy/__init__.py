"""Deployment material; `deploy.local` is the demo and test equipment."""
