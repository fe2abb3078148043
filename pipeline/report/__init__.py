"""The report of a window: JSON and CSV for programs, HTML and Markdown for people, a table for a terminal."""

from __future__ import annotations

from pipeline.report.terminal import summary, table
from pipeline.report.text import Note
from pipeline.report.writer import write

__all__ = ["Note", "summary", "table", "write"]
