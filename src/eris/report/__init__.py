"""The result of a run, for people: the table at the end of a run and the HTML report beside its files."""

from __future__ import annotations

from eris.report.page import write_report
from eris.report.tables import summary_table

__all__ = ["summary_table", "write_report"]
