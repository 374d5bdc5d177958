"""Small models, long roads: a step is taken in many stretches, as it is with a large model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eris.storage import stretch


@pytest.fixture(autouse=True, scope="module")
def short_stretches() -> Iterator[None]:
    before, stretch.STRETCH = stretch.STRETCH, 11
    yield
    stretch.STRETCH = before
