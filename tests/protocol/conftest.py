"""Cut every step into many stretches, as for a large model, although the models here are small."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eris.storage import stretch


@pytest.fixture(autouse=True, scope="module")
def short_stretches() -> Iterator[None]:
    before, stretch.STRETCH = stretch.STRETCH, 11
    yield
    stretch.STRETCH = before
