"""Small models, long roads: a step is taken in many stretches, as it is with a large model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eris.protocol import round_mean


@pytest.fixture(autouse=True, scope="package")
def short_stretches() -> Iterator[None]:
    before, round_mean.STRETCH = round_mean.STRETCH, 11
    yield
    round_mean.STRETCH = before
