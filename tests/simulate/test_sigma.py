"""What privacy.noise_multiplier means: σ times a member's 2C, or a sample's C, as the setting's own words say."""

from __future__ import annotations

import numpy as np
import pytest

from eris.config import Privacy, load_config
from eris.events import Sent
from eris.methods import with_defaults
from eris.simulate.run import run

SIGMA, C, RATE = 1000.0, 0.01, 0.5  # so much that next to it the gradients are nothing
FEW = ("members=4", "rounds=1", "workers=1", "model.name=logistic", "data.samples=16", "data.validation=0.0")
LOCAL = ("data.test_samples=20", "local.batch=full", "local.epochs=1", "local.momentum=0.0", f"local.lr={RATE}")
NOISE = ("method=eris", f"privacy.clip={C}", f"privacy.noise_multiplier={SIGMA}", "server.max_step=off")


@pytest.mark.parametrize(
    ("unit", "deviation"), [("member", SIGMA * 2 * C), ("sample", RATE * SIGMA * C / 16)], ids=["member", "sample"]
)
def test_noise_has_the_size_that_its_setting_says(tmp_path, unit, deviation):
    """Noise for a sample is added to the sum of 16 gradients, which is then divided and takes a step."""
    sent: list[np.ndarray] = []

    def listen(event) -> None:
        if isinstance(event, Sent):
            sent.append(event.values.copy())

    config = with_defaults(load_config(changes=[*FEW, *LOCAL, *NOISE, f"privacy.unit={unit}"]), "eris")
    run(config, tmp_path / "run", listeners=[listen])
    values = np.concatenate(sent)
    assert values.size == 4 * 7850
    assert values.std() == pytest.approx(deviation, rel=0.02)


def test_the_setting_says_what_sigma_is_measured_in():
    described = Privacy.model_fields["noise_multiplier"].description or ""
    assert "in units of the sensitivity (a member's 2C, a sample's C)" in described
