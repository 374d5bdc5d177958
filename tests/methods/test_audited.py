"""An audit attacks what a method really sends: DP-SGD with its noise, and neighbours where nobody aggregates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eris.audit.attacks.by_name import ATTACKS
from eris.audit.membership_run import AuditPlan, audit_method
from eris.audit.observer import parse_observer
from eris.config import load_config
from eris.errors import ConfigError

SMALL = ["members=3", "data.samples=24", "data.test_samples=20", "local.batch=full", "local.steps=0", "rounds=2"]
PLAN = AuditPlan((parse_observer("aggregator"),), tuple(ATTACKS)[:1], tosses=20)


def test_dpsgd_can_be_audited(tmp_path):
    config = load_config(changes=[*SMALL, "method=fedavg-dpsgd"])
    trial = audit_method(config, tmp_path / "audit", PLAN)
    assert trial.method == "fedavg-dpsgd"
    assert "sample" in (tmp_path / "audit" / "summary.json").read_text(encoding="utf-8")


def test_where_members_have_models_of_their_own_a_neighbour_is_meant(tmp_path):
    config = load_config(changes=[*SMALL, "method=ako"])
    assert audit_method(config, tmp_path / "audit", PLAN).method == "ako"
    server = replace(PLAN, observers=(parse_observer("server"),))
    with pytest.raises(ConfigError, match="server"):
        audit_method(config, tmp_path / "server", server)
