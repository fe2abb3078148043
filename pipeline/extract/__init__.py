"""Readers of outside sources; each writes raw Parquet into the lake."""
