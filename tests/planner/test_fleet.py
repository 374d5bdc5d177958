"""Fleets, model sizes and quantities, as people write them."""

import json
import math

import pytest

from eris.errors import ConfigError, ErisError, SpecError
from eris.planner import Fleet, Peer, model_size, read_fleet
from eris.planner.quantity import parse_bytes, parse_count, parse_rate, parse_share

TOML = """
[server]
upload = "1Gbit/s"
download = 125_000_000

[[peer]]
name = "oslo"
upload = "20MB/s"
download = "50MB/s"
memory = "2GB"

[[peer]]
name = "phone"
upload = 1e6
download = "8Mbit/s"
aggregate = false
count = 2
"""


@pytest.fixture
def file(tmp_path):
    def write(text, name="fleet.toml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_fleet_from_toml(file):
    fleet = read_fleet(file(TOML))
    assert [peer.name for peer in fleet.peers] == ["oslo", "phone-1", "phone-2"]
    assert fleet.peers[0] == Peer("oslo", 20e6, 50e6, 2e9)
    assert fleet.peers[2] == Peer("phone-2", 1e6, 1e6, math.inf, False)
    assert (fleet.server.upload, fleet.server.download) == (125e6, 125e6)
    assert fleet.candidates == (0,)
    assert fleet.rate is None


def test_the_same_fleet_from_csv(file):
    text = "name, upload, download, memory, aggregate\noslo, 20MB/s, 50MB/s, 2GB, yes\nphone, 1MB/s, 1MB/s, , no\n"
    fleet = read_fleet(file(text, "fleet.csv"))
    assert fleet.peers == (Peer("oslo", 20e6, 50e6, 2e9), Peer("phone", 1e6, 1e6, math.inf, False))
    assert (fleet.server.name, fleet.server.upload) == ("server", 20e6)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("[[peer]]\nname='a'\nupload=0\ndownload=1\n", "f.toml", "upload rate is 0.*peer=a"),
        ("[[peer]]\nname='a'\nupload=1\ndownload='0MB/s'\n", "f.toml", "download rate is 0.*peer=a"),
        ("[[peer]]\nname='a'\nupload=1\n", "f.toml", "a peer has no download"),
        ("[[peer]]\nname='a'\nupload=1\ndownload=1\nspeed=3\n", "f.toml", "unknown keys.*speed"),
        ("[[peer]]\nname='a'\nupload=1\ndownload=1\nmemory='0'\n", "f.toml", "memory is 0"),
        ("[[peer]]\nname='a'\nupload=1\ndownload=1\ncount=0\n", "f.toml", "count is 0"),
        ("[[peer]]\nname='a'\nupload=1\ndownload=1\naggregate='perhaps'\n", "f.toml", "aggregate is 'perhaps'"),
        ("[[peer]]\nname='a'\nupload=1\ndownload=1\n" * 2, "f.toml", "peer names repeat"),
        ("[[peer]]\nname='a'\nupload=1\ndownload=1\nrelayed=true\n", "f.toml", "a is relayed, .* no relay"),
        ("[peers]\n", "f.toml", "unknown tables"),
        ("", "f.toml", "names no peers"),
        ("[[peer", "f.toml", "cannot be read"),
        ("name,upload,download\na,1,1,9\n", "f.csv", "more fields"),
        ("name,upload,download\n", "f.csv", "no peers"),
    ],
)
def test_a_bad_fleet_says_what_is_wrong(file, text, name, message):
    with pytest.raises(ConfigError, match=message):
        read_fleet(file(text, name))


def test_a_relay_and_who_needs_it(file):
    relay = '[relay]\nupload = "1MB/s"\ndownload = "2MB/s"\n'
    fleet = read_fleet(file(TOML.replace('memory = "2GB"', "relayed = true") + relay))
    assert (fleet.relay, fleet.relayed.tolist()) == (Peer("relay", 1e6, 2e6), [True, False, False, False])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.toml cannot be read"):
        read_fleet(tmp_path / "nowhere.toml")


def test_aggregators_by_number_and_by_name():
    peers = (
        Peer("slow", 1e6, 1e6),
        Peer("fast", 9e6, 9e6),
        Peer("no", 1e9, 1e9, aggregate=False),
        Peer("mid", 2e6, 2e6),
    )
    fleet = Fleet(peers)
    assert fleet.strongest(2) == (1, 3)
    assert fleet.numbers_of(["mid", "slow"]) == (0, 3)
    with pytest.raises(ConfigError, match="only 3 peers may aggregate"):
        fleet.strongest(4)
    with pytest.raises(ConfigError, match="no peer of the fleet is named 'bergen', 'rome': it has slow, fast, no, mid"):
        fleet.numbers_of(["bergen", "mid", "rome"])
    with pytest.raises(ConfigError, match="no may not aggregate"):
        fleet.numbers_of(["no"])
    with pytest.raises(ConfigError, match="named twice"):
        fleet.numbers_of(["mid", "mid"])
    with pytest.raises(ConfigError, match="members is 0"):
        Fleet.uniform(0, 1.0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("62K", 62_000),
        ("1.65M", 1_650_000),
        ("1.3B", 1_300_000_000),
        ("61706", 61_706),
        ("61,706", 61_706),
        (1e6, 10**6),
    ],
)
def test_counts(text, value):
    assert parse_count(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("20MB/s", 20e6), ("100Mbit/s", 12.5e6), ("1 Gbit/s", 125e6), ("100Mbps", 12.5e6), ("5", 5), ("20 kB / s", 20e3)],
)
def test_rates(text, value):
    assert parse_rate(text) == value


def test_other_quantities():
    assert parse_bytes("500MB") == 5e8
    assert parse_share("1%") == parse_share("0.01") == 0.01
    assert parse_share("0.012%") == 0.00012


@pytest.mark.parametrize(
    ("parse", "text"),
    [(parse_count, "many"), (parse_rate, "fast"), (parse_rate, "-3MB/s"), (parse_bytes, "2 GiB"), (parse_share, "0"),
     (parse_share, "101%"), (parse_share, "all"), (parse_rate, "20Mb/s")],
)  # fmt: skip
def test_nonsense_is_refused(parse, text):
    with pytest.raises(ConfigError):
        parse(text)


def test_models_by_name_number_and_spec(file):
    assert model_size("gpt-neo-1.3b").n == 1_315_577_856
    assert model_size("62K").bytes == 248_000
    assert model_size(7).values == 7
    spec = {"tensors": [{"name": "w", "shape": [3, 4]}, {"name": "m", "shape": [5], "role": "buffer"}]}
    assert (
        model_size(str(file(json.dumps(spec), "spec.json"))).n,
        model_size(str(file(json.dumps(spec), "s.json"))).buffers,
    ) == (12, 5)
    listing = [["w", [2, 2], "float32", "trainable"], ["steps", [], "int64", "local"]]
    assert model_size(str(file(json.dumps(listing), "digest.json"))).values == 4


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [("[1]", SpecError, "cannot be read"), ("{}", ConfigError, "no list"), ("{", ConfigError, "cannot be read"),
     ('[["w", [2], "float32", "queen"]]', SpecError, "role 'queen'")],
)  # fmt: skip
def test_a_bad_spec_is_refused(file, text, kind, message):
    with pytest.raises(kind, match=message):
        model_size(str(file(text, "spec.json")))


def test_an_unknown_model_lists_the_known_ones():
    with pytest.raises(ErisError, match="lenet5, resnet9"):
        model_size("vgg")
