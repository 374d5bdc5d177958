"""Lightning modules as they are. Runs where lightning is installed; `make test-stories` has an environment with it."""

from __future__ import annotations

import numpy as np
import pytest

lightning = pytest.importorskip("lightning")

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from eris import Federation
from eris.errors import ErisError
from eris.interop.lightning import lightning_task
from eris.seeds import private_root, public_root

pytestmark = pytest.mark.filterwarnings("ignore")


def loader(seed: int, **options):
    random = np.random.default_rng(seed)
    features = random.normal(size=(64, 6)).astype("float32")
    labels = (features[:, 0] + features[:, 1] > 0).astype("int64")
    return DataLoader(TensorDataset(torch.from_numpy(features), torch.from_numpy(labels)), batch_size=16, **options)


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 2))
        self.fixed = nn.Parameter(torch.ones(2), requires_grad=False)

    def training_step(self, batch, number):
        features, labels = batch
        loss = nn.functional.cross_entropy(self.layers(features) * self.fixed, labels)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, number):
        features, labels = batch
        answers = self.layers(features)
        self.log("val_loss", nn.functional.cross_entropy(answers, labels))
        self.log("val_acc", (answers.argmax(1) == labels).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.05)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def task(config, peer):
    return lightning_task(Net, loader(peer, shuffle=True), val=loader(99), epochs=2)


def test_members_learn_together_and_eris_is_fedavg(tmp_path):
    result = Federation(task=task, method=["eris", "fedavg"], members=3, rounds=4).run(tmp_path / "run", report=False)
    assert result["eris"]["model_digest"] == result["fedavg"]["model_digest"]
    assert result["eris"]["final_accuracy"] > 0.7


def test_statistics_are_averaged_what_is_frozen_is_never_sent():
    roles = {tensor.name: tensor.role for tensor in task(None, 0).spec.tensors}
    assert roles["layers.1.running_mean"] == roles["layers.1.running_var"] == "buffer"
    assert roles["layers.1.num_batches_tracked"] == "local"
    assert roles["fixed"] == "frozen"


def test_it_is_what_a_trainer_does_alone():
    own, seed = task(None, 0), private_root(1, 0)
    start = own.initial(public_root(1))
    result = own.train(0, start, {}, round=0, seed=seed)
    again = own.train(0, start, {}, round=0, seed=seed)
    assert np.array_equal(result.update, again.update)
    assert result.steps == 8  # two epochs of four batches
    assert result.samples == 64
    assert 0 < result.loss < 2
    other = own.train(0, start, {}, round=0, seed=private_root(2, 0))
    assert not np.array_equal(result.update, other.update)  # batches are shuffled by the member's own seed


class NoSteps(lightning.LightningModule):
    pass


class Doubled(Net):
    def __init__(self):
        super().__init__()
        self.double()


@pytest.mark.parametrize(
    ("module", "data", "sentence"),
    [
        (NoSteps, None, "NoSteps has no training_step: define training_step"),
        (lambda: nn.Linear(2, 2), None, "Linear is not a LightningModule: give a function that makes one"),
        (
            Doubled,
            None,
            "'fixed' is float64, but updates are float32: make the model float32: eris does not round silently",
        ),
        (Net, [1, 2], "the loader does not say how many samples it has: give a DataLoader of a dataset with a length"),
    ],
    ids=["no steps", "no module", "float64", "no length"],
)
def test_what_cannot_be_is_said_in_a_sentence(module, data, sentence):
    with pytest.raises(ErisError) as told:
        lightning_task(module, data or loader(0))
    assert str(told.value) == sentence


def test_a_module_that_is_made_already():
    with pytest.raises(ErisError) as told:
        lightning_task(Net(), loader(0))
    assert str(told.value) == "the module is a Net that is already built: give the function that makes it: Net"
