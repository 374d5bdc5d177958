import json

import numpy as np
import pytest
import torch

from eris.audit.networks import load_network, network_is_here
from eris.audit.reconstruction.generators import Dcgan, Progan, load_generator, read_dcgan, read_progan
from eris.errors import DataError

DRAWS = np.random.default_rng(0)


def published_dcgan(folder):
    """A checkpoint with the tensors of DCGAN's generator, filled with small random values."""
    channels, state = (100, 512, 256, 128, 64, 3), {}
    for layer in range(5):
        state[f"main.{3 * layer}.weight"] = torch.randn(channels[layer], channels[layer + 1], 4, 4) * 0.05
    for layer in range(4):
        size = channels[layer + 1]
        state[f"main.{3 * layer + 1}.weight"], state[f"main.{3 * layer + 1}.bias"] = torch.ones(size), torch.zeros(size)
        state[f"main.{3 * layer + 1}.running_mean"] = torch.zeros(size)
        state[f"main.{3 * layer + 1}.running_var"] = torch.ones(size)
    torch.save({"netG_state_dict": state}, folder / "weights.tar")


def published_progan(folder):
    """A list of tensors and two files with their values; shapes do not matter to the reader."""
    tensors = [("module/shape", np.arange(2, dtype=np.int32))]
    for layer in range(13):
        kernel = DRAWS.normal(size=(1, 1, 2, 3)).astype(np.float32)
        tensors.append((f"module_apply_default/Conv2D{f'_{layer}' if layer else ''}/merged_input", kernel))
        if layer < 12:
            tensors.append((f"module/g_model/res_{layer // 2}/conv{layer % 2}/bias", np.full(3, layer, np.float32)))
    tensors.append(("module_apply_default/add_26", np.full((1, 3, 1, 1), 12, np.float32)))
    content = b"".join(array.tobytes() for _, array in tensors)
    listed = [{"name": name, "shape": array.shape, "dtype": str(array.dtype)} for name, array in tensors]
    home = folder / "package" / "progan"
    home.mkdir(parents=True)
    (home / "one.bin").write_bytes(content[:101])
    (home / "two.bin").write_bytes(content[101:])
    manifest = {"weightsManifest": [{"paths": ["one.bin", "two.bin"], "weights": listed}]}
    (home / "model.json").write_text(json.dumps(manifest))
    return dict(tensors)


def test_progan_is_put_together_from_its_pieces(tmp_path):
    tensors = published_progan(tmp_path)
    weights = read_progan(tmp_path)
    assert len(weights) == 26
    kernel = tensors["module_apply_default/Conv2D_7/merged_input"]
    assert np.array_equal(weights["conv7.weight"], kernel.transpose(3, 2, 0, 1))
    assert weights["conv7.bias"].tolist() == [7, 7, 7]
    last = tensors["module_apply_default/Conv2D_12/merged_input"]
    assert np.array_equal(weights["conv12.weight"], last.transpose(3, 2, 0, 1) / 2)
    assert weights["conv12.bias"].tolist() == [12, 12, 12]


def test_dcgan_makes_pictures_of_its_published_tensors(tmp_path):
    published_dcgan(tmp_path)
    generator = Dcgan(read_dcgan(tmp_path))
    with torch.no_grad():
        faces = generator(torch.randn(2, 100), torch.zeros(2, dtype=torch.int64))
    assert faces.shape == (2, 3, 64, 64)
    assert faces.min() >= 0
    assert faces.max() <= 1
    assert not torch.equal(faces[0], faces[1])


def test_a_checkpoint_without_a_generator_is_refused(tmp_path):
    torch.save({"netD_state_dict": {}}, tmp_path / "weights.tar")
    with pytest.raises(DataError, match="no generator"):
        read_dcgan(tmp_path)


@pytest.mark.parametrize(("name", "side"), [("dcgan-64", 64), pytest.param("progan-128", 128, marks=pytest.mark.slow)])
def test_fetched_generators_make_pictures_with_the_statistics_of_faces(name, side):
    if not network_is_here(name):
        pytest.skip(f"run `eris data get {name}` first")
    generator = load_generator(name)
    assert isinstance(generator, (Dcgan, Progan))
    torch.manual_seed(0)
    with torch.no_grad():
        faces = generator(torch.randn(2, generator.latents), torch.zeros(2, dtype=torch.int64))
    assert faces.shape == (2, 3, side, side)
    assert 0.15 < faces.mean() < 0.75
    assert 0.1 < faces.std() < 0.4
    neighbours = (faces[..., 1:] - faces[..., :-1]).abs().mean()  # photographs are smooth
    assert neighbours < 0.25 * faces.std()
    assert sum(array.size for array in load_network(name).values()) > 3e6
