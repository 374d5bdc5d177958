"""The experiments, a table or figure (or several of the same trainings) in each file; adding one is adding a file."""

from __future__ import annotations

__all__: list[str] = []
