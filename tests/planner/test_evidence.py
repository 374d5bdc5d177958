"""What a finished run says about the constants, and what it cannot say."""

import math

import pytest

from eris.planner.evidence import broken_assumptions, evidence

PLAIN = {
    "method": "eris",
    "members": 5,
    "aggregators": 3,
    "participation": 1.0,
    "local": {"epochs": 1, "batch": "full", "optimizer": "sgd", "lr": 0.1, "momentum": 0.0},
    "server": {"optimizer": "fedavg"},
    "compression": {"keep": 0.1, "masks": "independent"},
}


def quadratic(curvature, step, rounds):
    """Return the metrics of gradient descent on ½·curvature·x² from x = 1."""
    x, lines = 1.0, []
    for number in range(rounds):
        lines.append(
            {"round": number, "train_loss": curvature * x * x / 2, "gradient_norm_squared": (curvature * x) ** 2}
        )
        x -= step * curvature * x
    return lines


def test_a_quadratic_shows_its_own_constants():
    found = evidence(PLAIN, quadratic(3.0, 0.1, 8), {"parameters": 61_706})
    values = {name: estimate.value for name, estimate in found.estimates.items()}
    assert values["smoothness"] == pytest.approx(3.0)
    assert values["gradient_norm"] == pytest.approx(3.0)
    assert values["gap"] == pytest.approx(1.5)
    assert values["reference_error"] == pytest.approx(9.0)
    assert (values["gamma2"], values["omega"], values["step"]) == (0.0, 0.0, 0.1)
    assert (values["rounds"], values["members"], values["aggregators"]) == (8, 5, 3)
    assert values["parameters"] == 61_706
    squares = [9.0 * 0.7 ** (2 * number) for number in range(8)]
    assert found.measured == pytest.approx(sum(squares) / 8)
    assert (found.recorded, found.broken, found.masks, found.full_batches) == (8, (), "independent", True)


def test_every_estimate_says_which_kind_it_is():
    kinds = {name: estimate.kind for name, estimate in evidence(PLAIN, quadratic(3.0, 0.1, 8)).estimates.items()}
    assert kinds["smoothness"] == kinds["gradient_norm"] == kinds["reference_error"] == "lower"
    assert kinds["gap"] == "upper"
    assert kinds["parameters"] == "missing"


def test_without_gradient_norms_nothing_is_made_up():
    lines = [{"round": 0, "train_loss": 2.3}, {"round": 1}]
    found = evidence(PLAIN, lines)
    for name in ("smoothness", "gradient_norm", "reference_error"):
        assert found.estimates[name].value is None
        assert "gradient_norm = true" in found.estimates[name].how
    assert (found.measured, found.recorded) == (None, 0)


def test_nothing_at_all_is_no_crash():
    found = evidence({}, [])
    assert found.estimates["members"].kind == "missing"
    assert found.estimates["gap"].value is None
    assert found.estimates["rounds"].value == 0


def test_bad_values_are_left_out():
    lines = [{"round": 0, "train_loss": None, "gradient_norm_squared": math.nan}, {"round": 1, "loss": True}]
    assert evidence(PLAIN, lines).recorded == 0
    assert evidence(PLAIN, [{"round": 0, "train_loss": -1.0}]).estimates["gap"].kind == "missing"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"local": {**PLAIN["local"], "epochs": 2}}, "several local steps"),
        ({"local": {**PLAIN["local"], "batch": 32}}, "several local steps"),
        ({"local": {**PLAIN["local"], "optimizer": "adam"}}, "adaptive"),
        ({"local": {**PLAIN["local"], "momentum": 0.9}}, "momentum"),
        ({"local": {**PLAIN["local"], "weight_decay": 0.1}}, "weight decay"),
        ({"server": {"optimizer": "fedadam"}}, "server optimizer"),
        ({"participation": 0.5}, "sit out"),
        ({"privacy": {"clip": 1.0}}, "clipping"),
    ],
)
def test_broken_assumptions_are_named_and_stop_the_estimate(changes, words):
    config = PLAIN | changes
    assert any(words in text for text in broken_assumptions(config))
    assert evidence(config, quadratic(3.0, 0.1, 8)).estimates["smoothness"].value is None


def test_compressed_steps_hide_the_smoothness():
    found = evidence(PLAIN | {"method": "eris+dsc"}, quadratic(3.0, 0.1, 8))
    assert found.estimates["omega"].value == pytest.approx(9)
    assert found.estimates["smoothness"].value is None


def test_gaps_between_evaluations_hide_it_too():
    found = evidence(PLAIN, quadratic(3.0, 0.1, 9)[::2])
    assert found.estimates["smoothness"].value is None
    assert "evaluate_every" in found.estimates["smoothness"].how
