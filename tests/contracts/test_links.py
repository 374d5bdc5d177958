"""What every link promises, whatever carries its bytes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.errors import InputError, Reason, Refused
from eris.transport.authority import Authority
from eris.transport.credentials import Credentials
from eris.transport.link import Link, LinkClosed, LinkError, LinkLimits, LinkTimeout
from eris.transport.link_listener import LinkListener
from eris.transport.memory_link import memory_pair
from eris.transport.patience import Patience
from eris.transport.stream_link import StreamLink
from eris.transport.tls_link import Plaintext, dial

Pair = tuple[StreamLink, StreamLink]
MakePair = Callable[[LinkLimits], Pair]

HEADER = 16
LIMITS = LinkLimits(header_size=HEADER, max_payload=1 << 27, idle=5.0)
HASTY = replace(LIMITS, idle=0.25)
SECONDS = 20.0  # what no test ever waits for, unless the link hangs


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("federation")
    authority = Authority.create(folder, "cardio")
    authority.issue("alice")
    authority.issue("bob")
    return folder


@contextlib.contextmanager
def links(kind: str, federation: Path) -> Iterator[MakePair]:
    with contextlib.ExitStack() as stack:

        def make(limits: LinkLimits) -> Pair:
            pair = _make(kind, federation, limits)
            for link in pair:
                stack.callback(link.close)
            return pair

        yield make


def _make(kind: str, federation: Path, limits: LinkLimits) -> Pair:
    if kind == "memory":
        return memory_pair(limits, "alice", "bob")
    names = ("alice", "bob")
    alice, bob = (Plaintext(n) if kind == "plain" else Credentials(federation / "peers" / n) for n in names)
    with LinkListener(bob, ("127.0.0.1", 0), limits=limits) as listener:
        left = dial(listener.address, alice, expected="bob", limits=limits)
        return left, listener.accept(SECONDS)


@pytest.fixture(params=["memory", "tls", "plain"])
def make_pair(request: pytest.FixtureRequest, federation: Path) -> Iterator[MakePair]:
    before = set(threading.enumerate())
    with links(request.param, federation) as make:
        yield make
    after = {thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)}  # gRPC's own
    assert after <= before


@pytest.fixture
def pair(make_pair: MakePair) -> Pair:
    return make_pair(LIMITS)


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def head(number: int) -> bytes:
    return number.to_bytes(HEADER, "little")


def soon(seconds: float = SECONDS) -> float:
    return time.monotonic() + seconds


def receive(link: Link, length: int) -> tuple[bytes, bytes]:
    header, payload = link.receive_header(deadline=soon()), bytearray(length)
    link.receive_into(memoryview(payload), deadline=soon())
    return header, bytes(payload)


def write_raw(link: StreamLink, data: bytes) -> None:
    """Put bytes on the stream behind the back of the frames."""
    link._stream.write(memoryview(data), Patience(SECONDS))
    link._stream.flush(Patience(SECONDS))


def test_frames_arrive_in_order_and_exactly(pair: Pair) -> None:
    left, right = pair
    left.send(head(1), b"first")
    left.send(head(2), b"second")
    assert receive(right, 5) == (head(1), b"first")
    assert receive(right, 6) == (head(2), b"second")
    right.send(head(3), b"answer")
    assert receive(left, 6) == (head(3), b"answer")


@pytest.mark.parametrize("kind", ["memory", "tls", "plain"])
def test_any_buffers_arrive_as_one_payload(kind: str, federation: Path) -> None:
    with links(kind, federation) as make, ThreadPoolExecutor(1) as pool:
        left, right = make(LIMITS)

        @settings(max_examples=30, deadline=None)
        @given(st.lists(st.integers(0, 200_000), max_size=4), st.integers(0, 2**32))
        def check(lengths: list[int], seed: int) -> None:
            buffers = [np.random.default_rng(seed).bytes(length) for length in lengths]
            sending = pool.submit(left.send, head(7), *buffers, deadline=soon())
            assert receive(right, sum(lengths)) == (head(7), b"".join(buffers))
            sending.result(SECONDS)

        check()


def test_arrays_are_sent_from_and_received_into_their_own_memory(pair: Pair, aside: ThreadPoolExecutor) -> None:
    left, right = pair
    values = np.random.default_rng(0).standard_normal((300, 1000)).astype(np.float32)
    staged = np.full((300, 1000), np.nan, np.float32)
    sending = aside.submit(left.send, head(0), values, values[:10], np.empty(0, np.float32), deadline=soon())
    right.receive_header()
    right.receive_into(memoryview(staged), deadline=soon())
    tail = np.empty((10, 1000), np.float32)
    right.receive_into(memoryview(tail), deadline=soon())
    sending.result(SECONDS)
    assert np.array_equal(staged, values)
    assert np.array_equal(tail, values[:10])


def test_64_megabytes_in_one_frame(pair: Pair, aside: ThreadPoolExecutor) -> None:
    left, right = pair
    values = np.random.default_rng(1).integers(0, 256, 64_000_000, dtype=np.uint8)
    staged = np.zeros_like(values)
    sending = aside.submit(left.send, head(0), values, deadline=soon())
    right.receive_header(deadline=soon())
    right.receive_into(memoryview(staged), deadline=soon())
    sending.result(SECONDS)
    assert np.array_equal(staged, values)


def test_many_small_frames(pair: Pair, aside: ThreadPoolExecutor) -> None:
    left, right = pair

    def send_all() -> None:
        for number in range(2000):
            left.send(head(number), number.to_bytes(2, "little"))

    sending = aside.submit(send_all)
    for number in range(2000):
        assert receive(right, 2) == (head(number), number.to_bytes(2, "little"))
    sending.result(SECONDS)


def test_a_frame_may_be_empty(pair: Pair) -> None:
    left, right = pair
    left.send(head(9))
    assert receive(right, 0) == (head(9), b"")


def test_a_slow_reader_holds_the_writer_back(pair: Pair, aside: ThreadPoolExecutor) -> None:
    left, right = pair
    payload = np.arange(16_000_000, dtype=np.uint32)
    sending = aside.submit(left.send, head(0), payload, deadline=soon())
    time.sleep(0.5)
    assert not sending.done()
    assert left.traffic.wire_sent < payload.nbytes / 4  # the rest waits in the sender's own array, not in a queue
    staged = np.empty_like(payload)
    right.receive_header(deadline=soon())
    right.receive_into(memoryview(staged), deadline=soon())
    sending.result(SECONDS)
    assert np.array_equal(staged, payload)


def test_waiting_for_a_frame_ends_at_the_deadline_and_may_be_tried_again(pair: Pair) -> None:
    left, right = pair
    started = time.monotonic()
    with pytest.raises(LinkTimeout) as caught:
        right.receive_header(deadline=started + 0.15)
    assert 0.14 <= time.monotonic() - started < 2.0
    assert caught.value.kind == "deadline"
    assert caught.value.between_frames
    left.send(head(5), b"late")
    assert receive(right, 4) == (head(5), b"late")


def test_waiting_for_a_frame_may_take_longer_than_the_idle_time(make_pair: MakePair, aside: ThreadPoolExecutor) -> None:
    left, right = make_pair(HASTY)
    waiting = aside.submit(right.receive_header, deadline=soon())
    time.sleep(3 * HASTY.idle)  # training takes longer than any idle time
    left.send(head(6))
    assert waiting.result(SECONDS) == head(6)


def test_without_a_deadline_the_idle_time_bounds_the_wait(make_pair: MakePair) -> None:
    _, right = make_pair(HASTY)
    with pytest.raises(LinkTimeout) as caught:
        right.receive_header()
    assert caught.value.kind == "idle"


@pytest.mark.parametrize("sent", [HEADER // 2, HEADER, HEADER + 10])
def test_a_frame_that_stops_half_way_is_idle(make_pair: MakePair, sent: int) -> None:
    left, right = make_pair(HASTY)
    write_raw(left, bytes(sent))
    with pytest.raises(LinkTimeout) as caught:
        receive(right, 100)
    assert caught.value.kind == "idle"
    assert not caught.value.between_frames
    with pytest.raises(LinkClosed):  # what follows could not be told from payload
        right.receive_header()


def test_trickling_is_idle(make_pair: MakePair, aside: ThreadPoolExecutor) -> None:
    left, right = make_pair(HASTY)

    def trickle() -> None:
        with contextlib.suppress(LinkError):
            for _ in range(200):
                write_raw(left, b"x")
                time.sleep(0.02)

    left.send(head(0), b"")
    right.receive_header()
    trickling = aside.submit(trickle)
    started = time.monotonic()
    with pytest.raises(LinkTimeout) as caught:
        right.receive_into(memoryview(bytearray(1000)), deadline=soon())
    assert caught.value.kind == "idle"
    assert time.monotonic() - started < 4 * HASTY.idle
    right.close()
    trickling.result(SECONDS)


def test_slow_but_steady_is_not_idle(make_pair: MakePair, aside: ThreadPoolExecutor) -> None:
    limits = replace(LIMITS, idle=0.6)
    left, right = make_pair(limits)
    started = time.monotonic()
    sending = aside.submit(left.send, head(0), bytes(32 << 20), deadline=soon())
    right.receive_header(deadline=soon())
    for _ in range(32):
        right.receive_into(memoryview(bytearray(1 << 20)), deadline=soon())
        time.sleep(0.04)
    sending.result(SECONDS)
    assert time.monotonic() - started > 1.5 * limits.idle


def test_a_payload_ends_at_the_deadline_however_fast_it_moves(pair: Pair, aside: ThreadPoolExecutor) -> None:
    left, right = pair

    def flow() -> None:
        with contextlib.suppress(LinkError):
            while True:
                write_raw(left, bytes(100_000))
                time.sleep(0.01)

    flowing = aside.submit(flow)
    with pytest.raises(LinkTimeout) as caught:
        right.receive_into(memoryview(bytearray(1 << 26)), deadline=soon(0.3))
    assert caught.value.kind == "deadline"
    right.close()
    flowing.result(SECONDS)


@pytest.mark.parametrize("kind", ["idle", "deadline"])
def test_sending_to_a_reader_that_stopped_ends(make_pair: MakePair, kind: str) -> None:
    left, right = make_pair(HASTY if kind == "idle" else LIMITS)
    with pytest.raises(LinkTimeout) as caught:
        left.send(head(0), bytes(1 << 26), deadline=soon(0.5))
    assert caught.value.kind == kind
    with pytest.raises(LinkClosed):
        left.send(head(0))
    left.close()
    with pytest.raises(LinkClosed) as closed:
        receive(right, 1 << 26)
    assert not closed.value.clean


@pytest.mark.parametrize("closer", [0, 1])
def test_a_goodbye_between_frames_is_clean(pair: Pair, closer: int) -> None:
    closing, other = pair[closer], pair[1 - closer]
    closing.send(head(1), b"last words")
    closing.close()
    assert receive(other, 10) == (head(1), b"last words")
    with pytest.raises(LinkClosed) as caught:
        other.receive_header(deadline=soon())
    assert caught.value.clean
    closing.close()  # again: nothing happens
    with pytest.raises(LinkClosed):
        closing.send(head(2))


@pytest.mark.parametrize("sent", [1, HEADER - 1, HEADER, HEADER + 50])
def test_a_goodbye_within_a_frame_is_not_clean(pair: Pair, sent: int) -> None:
    left, right = pair
    write_raw(left, bytes(sent))
    left.close()
    with pytest.raises(LinkClosed) as caught:
        receive(right, 100)
    assert not caught.value.clean


def test_going_away_without_a_goodbye_is_not_clean(pair: Pair) -> None:
    left, right = pair
    if "SocketStream" in type(left._stream).__name__:
        pytest.skip("plain TCP has no goodbye of its own: the end of the stream is all there is")
    left._stream.wake()
    with pytest.raises(LinkClosed) as caught:
        right.receive_header(deadline=soon())
    assert not caught.value.clean


def test_a_side_that_broke_off_says_no_goodbye(make_pair: MakePair) -> None:
    left, right = make_pair(HASTY)
    if "SocketStream" in type(left._stream).__name__:
        pytest.skip("plain TCP has no goodbye of its own: the end of the stream is all there is")
    write_raw(left, bytes(HEADER // 2))
    with pytest.raises(LinkTimeout):
        right.receive_header()
    right.close()
    with pytest.raises(LinkClosed) as caught:
        left.receive_header(deadline=soon())
    assert not caught.value.clean


def test_sending_to_a_closed_link_ends(pair: Pair) -> None:
    left, right = pair
    right.close()

    def keep_sending() -> None:
        for _ in range(100):  # a socket notices with the second write
            left.send(head(0), bytes(100_000))
            time.sleep(0.01)

    with pytest.raises(LinkClosed):
        keep_sending()


@pytest.mark.parametrize("step", ["receive", "send"])
@pytest.mark.parametrize("closer", [0, 1])
def test_close_ends_the_wait_of_either_side(pair: Pair, aside: ThreadPoolExecutor, step: str, closer: int) -> None:
    left, _ = pair
    if step == "receive":
        waiting = aside.submit(left.receive_header, deadline=soon())
    else:
        waiting = aside.submit(left.send, head(0), bytes(1 << 26), deadline=soon())
    time.sleep(0.15)
    assert not waiting.done()
    pair[closer].close()
    with pytest.raises(LinkClosed):
        waiting.result(5.0)


def test_what_is_not_wanted_can_be_discarded(pair: Pair, aside: ThreadPoolExecutor) -> None:
    left, right = pair
    sending = aside.submit(left.send, head(1), bytes(3_000_001), deadline=soon())
    right.receive_header(deadline=soon())
    right.discard(3_000_001, deadline=soon())
    sending.result(SECONDS)
    left.send(head(2), b"wanted")
    assert receive(right, 6) == (head(2), b"wanted")


def test_sizes_are_held_to(make_pair: MakePair) -> None:
    left, right = make_pair(replace(LIMITS, max_payload=1000))
    with pytest.raises(InputError, match="1001 bytes"):
        left.send(head(0), bytes(1001))
    with pytest.raises(InputError, match="header"):
        left.send(b"short")
    for too_long in (right.discard, lambda length: right.receive_into(memoryview(bytearray(length)))):
        with pytest.raises(Refused) as caught:
            too_long(1001)
        assert caught.value.reason is Reason.WRONG_SIZE
    left.send(head(1), bytes(1000))  # nothing of the above touched the stream
    assert receive(right, 1000) == (head(1), bytes(1000))


def test_buffers_that_cannot_be_used_are_named(pair: Pair) -> None:
    left, right = pair
    with pytest.raises(InputError, match="contiguous"):
        left.send(head(0), np.ones((4, 4), np.float32)[:, 1])
    with pytest.raises(InputError, match="read-only"):
        right.receive_into(memoryview(b"constant"))
    left.send(head(0))
    right.receive_header()


def test_a_frame_that_more_follow_leaves_with_them(pair: Pair) -> None:
    left, right = pair
    left.send(head(3), b"abc", deadline=soon(), more=True)
    left.send(head(0), deadline=soon())
    assert right.receive_header(deadline=soon()) == head(3)
    data = bytearray(3)
    right.receive_into(memoryview(data), deadline=soon())
    assert (bytes(data), right.receive_header(deadline=soon())) == (b"abc", head(0))


def test_a_step_while_another_thread_closes_the_link_finds_it_closed(pair: Pair) -> None:
    left, _ = pair
    with left._turn:  # as close() has it while it says goodbye
        left._closed = True
        with pytest.raises(LinkClosed, match="this side"):
            left.send(head(0))
    left._closed = False


def test_two_threads_cannot_share_an_end(pair: Pair, aside: ThreadPoolExecutor) -> None:
    left, right = pair
    waiting = aside.submit(right.receive_header, deadline=soon())
    time.sleep(0.1)
    with pytest.raises(InputError, match="two threads"):
        right.receive_header()
    left.send(head(4))
    assert waiting.result(SECONDS) == head(4)


def test_each_end_knows_the_other(pair: Pair) -> None:
    left, right = pair
    assert (left.peer.name, right.peer.name) == ("bob", "alice")
    fingerprints = {left.peer.fingerprint, right.peer.fingerprint}
    assert fingerprints == {""} if left.peer.federation == "" else len(fingerprints) == 2  # plain text proves nothing
    assert "bob" in repr(left)


def test_every_byte_is_counted(pair: Pair) -> None:
    left, right = pair
    before = left.traffic.wire_sent
    left.send(head(0), bytes(1000), bytes(24))
    receive(right, 1024)
    right.send(head(1))
    receive(left, 0)
    assert (left.traffic.frames_sent, left.traffic.frames_received) == (1, 1)
    assert (left.traffic.sent, left.traffic.received) == (HEADER + 1024, HEADER)
    assert (right.traffic.sent, right.traffic.received) == (HEADER, HEADER + 1024)
    assert left.traffic.wire_sent == right.traffic.wire_received
    assert HEADER + 1024 <= left.traffic.wire_sent - before <= HEADER + 1024 + 256
    assert not left.worn
