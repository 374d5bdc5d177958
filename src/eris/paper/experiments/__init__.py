"""The experiments: each file has one table or figure, or several from the same trainings; to add one, add a file."""

from __future__ import annotations

__all__: list[str] = []
