"""What a federation says is counted before it begins, by encoding it; what would be too long is refused by number."""

from __future__ import annotations

import resource

import pytest

from eris.errors import ConfigError
from eris.transport.document_sizes import document_sizes, require_document_sizes
from eris.transport.process_limits import (
    coordinator_descriptors,
    coordinator_memory,
    link_memory,
    peer_descriptors,
    require_descriptors,
    require_process_memory,
)
from eris.wire.schema import LONGEST_DOCUMENT


def test_a_thousand_members_and_fifty_shards() -> None:
    sizes = document_sizes(1000, 50)
    assert sizes.plan <= 1_000
    assert sizes.verdict <= 6_000
    assert sizes.longest_verdict <= 12_000
    assert sizes.coordinator_sends <= 10_000_000
    assert sizes.peer_sends <= 1_000


@pytest.mark.parametrize("shards", [10, 50])
def test_what_the_coordinator_sends_grows_with_the_members_and_not_with_their_square(shards: int) -> None:
    few, many = document_sizes(100, shards), document_sizes(1000, shards)
    assert many.coordinator_sends < 15 * few.coordinator_sends  # beyond ten only by a bit for each member
    assert many.plan < 2 * few.plan
    assert many.report == few.report


def test_every_document_of_a_large_federation_fits() -> None:
    for members, shards in ((520, 520), (1000, 50), (1000, 1000), (3000, 50)):
        sizes = require_document_sizes(members, shards)
        assert max(sizes.documents.values()) < LONGEST_DOCUMENT


@pytest.mark.parametrize(("members", "shards"), [(4_000, 10), (20_000, 10)])
def test_a_federation_that_could_not_speak_is_refused_with_the_numbers(members: int, shards: int) -> None:
    with pytest.raises(ConfigError, match=rf"with {members:,} members and {shards:,} shards a .* has \d+ bytes"):
        require_document_sizes(members, shards)


def test_real_names_are_shorter_than_the_longest() -> None:
    names = tuple(f"peer-{number}" for number in range(100))
    assert document_sizes(100, 10, names=names).roster < document_sizes(100, 10).roster
    assert document_sizes(100, 10, names=names).plan == document_sizes(100, 10).plan


def test_descriptors_that_a_process_may_not_have_are_refused_with_the_numbers() -> None:
    assert coordinator_descriptors(1000) > 1000
    assert peer_descriptors(1000, 50) > 1050 > peer_descriptors(1000, 50, aggregates=False) > 50
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    require_descriptors(allowed, "this")
    with pytest.raises(
        ConfigError, match=f"needs {allowed + 1:,} file descriptors.*may have only {allowed:,}.*ulimit -n"
    ):
        require_descriptors(allowed + 1, "a coordinator")


def test_memory_that_a_machine_does_not_have_is_refused_with_the_numbers() -> None:
    assert coordinator_memory(1000) - coordinator_memory(10) > 100 * 1000 * 990  # a connection costs more than 100 kB
    assert link_memory(1000, 50) > link_memory(1000, 50, aggregates=False)
    require_process_memory(1, "this")
    with pytest.raises(
        ConfigError, match=r"a coordinator needs 1000000000\.0 GB of memory, but this process may have only .* GB"
    ):
        require_process_memory(10**18, "a coordinator")


def test_mask_keys_are_counted() -> None:
    plain, masked = (document_sizes(100, 10, unmaskers=count) for count in (0, 1))
    assert masked.plan - plain.plan == pytest.approx(100 * 34 + 10, abs=16)
    assert masked.plan < masked.roster  # which is what a federation can be too large for first
