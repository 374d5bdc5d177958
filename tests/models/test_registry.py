import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from eris.data.dataset import ArrayExamples, Dataset, Images
from eris.errors import ConfigError, ModelError
from eris.models import model_by_name, model_factory, model_names
from eris.models.fit import require_fit

SIZES = {"lenet5": 61_706, "resnet9": 1_652_682, "logistic": 7_850, "mlp": 50_890}


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_number_of_parameters(name, size):
    assert count(model_by_name(name)) == size


def test_resnet18_is_the_published_one():
    assert count(model_by_name("resnet18", stem="imagenet", classes=1000)) == 11_689_512


def test_resnet9_has_no_normalisation_layers():
    assert not list(model_by_name("resnet9").buffers())


@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        ("lenet5", {}, (1, 28, 28)),
        ("lenet5", {"channels": 3, "size": 32}, (3, 32, 32)),
        ("resnet9", {}, (3, 32, 32)),
        ("resnet18", {"width": 4}, (3, 32, 32)),
        ("resnet18", {"width": 4, "stem": "imagenet"}, (3, 64, 64)),
        ("mlp", {}, (1, 28, 28)),
        ("logistic", {}, (1, 28, 28)),
        ("tiny-batchnorm", {}, (1, 28, 28)),
    ],
)
def test_logits_have_one_column_for_each_class(name, options, shape):
    assert model_by_name(name, **options)(torch.zeros(2, *shape)).shape == (2, 10)


def test_a_module_of_ones_own_by_import_path():
    factory = model_factory("torch.nn:Linear", in_features=3, out_features=2)
    assert count(factory()) == 8


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("lenet6", {}, "no model 'lenet6'"),
        ("lenet5", {"colours": 3}, "colours"),
        ("no_such_module:Net", {}, "cannot be imported"),
        ("torch.nn:NoSuchThing", {}, "has no"),
    ],
)
def test_what_cannot_be_built_is_explained(name, options, says):
    with pytest.raises(ConfigError, match=says):
        model_by_name(name, **options)


def test_what_is_no_network_is_none():
    with pytest.raises(ModelError, match=r"returned \{\}, not a network"):
        model_by_name("builtins:dict")


def test_a_network_of_ours_is_held_to_its_data():
    colour = Images(np.zeros((3, 32, 32, 3), np.uint8), np.array([0, 1, 11]), (0.5,) * 3, (0.5,) * 3)
    data = Dataset("photographs", "made up", tuple("abcdefghijkl"), colour, colour)
    require_fit("lenet5", {"channels": 3, "size": 32, "classes": 12}, data)
    require_fit("resnet18", {"classes": 20}, data)
    for name, options, says in (
        ("lenet5", {"classes": 12}, "set model.options.channels = 3 (it is 1), model.options.size = 32 (it is 28)"),
        ("mlp", {"classes": 12}, "set model.options.inputs = 3072 (it is 784)"),
        ("resnet9", {}, "set model.options.classes = 12 (it is 10)"),
    ):
        with pytest.raises(ConfigError, match=re.escape(says)):
            require_fit(name, options, data)


def test_rows_are_no_pictures():
    rows = ArrayExamples(np.zeros((3, 8), np.float32), np.array([0, 1, 0]))
    with pytest.raises(ConfigError, match="mlp takes any shape"):
        require_fit("lenet5", {}, Dataset("own", "made up", (), rows, rows))


def test_names_can_be_listed_without_torch():
    code = "import sys, eris.models, eris.data; eris.models.model_names(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert "lenet5" in model_names()
