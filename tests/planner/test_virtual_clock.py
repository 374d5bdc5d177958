"""The planner and the simulator's virtual clock know nothing of each other, and agree."""

import ast
import importlib.util
import pkgutil
from pathlib import Path

import numpy as np
import pytest

import eris.planner
from eris.local.spec import ModelSpec
from eris.planner import Fleet, Peer, distribution_time, scenario, traffic
from eris.protocol.roster import RosterEntry
from eris.protocol.round_plan import RoundPlan
from eris.seeds import private_root, public_root
from eris.shards.plan import scattered
from eris.simulate.clock import Links
from eris.simulate.traffic import RoundBytes, framed
from eris.transforms.sparsify import rand_k
from eris.transforms.transform import SendContext
from eris.wire.frame import CHUNK, HEADER_BYTES

N = 300_000


def simulated(rates, owners, capacities, participants, keep):
    """Count one round as the simulator does, from the messages the transforms really make."""
    plan = scattered(N, len(owners), public_root(5).child("plan"), capacities=capacities)
    round_plan = RoundPlan(
        run="r", epoch=0, round=0, chain="", spec="",
        roster=tuple(RosterEntry(k, f"p{k}", 1.0) for k in range(len(rates))),
        participants=participants, assignment=owners,
    )  # fmt: skip
    context = SendContext(0, 0, plan, public_root(5), private_root(5, 0), ModelSpec.flat(N).trainable_sizes)
    parts = rand_k(keep).compress(np.ones(N, np.float32), context).parts(plan)
    sizes = np.array([part.payload_bytes for part in parts])
    counted = RoundBytes(round_plan, server=False, members=len(round_plan.roster))
    for member in participants:
        counted.sent(member, framed(sizes), ())
    counted.published(dict(enumerate(sizes.tolist())))
    spare = np.ones(len(rates) + 1)
    links = Links(
        np.array([up for up, _ in rates] + [1.0]), np.array([down for _, down in rates] + [1.0]), np.zeros(spare.size)
    )
    return counted.total(links)


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("keep", [1.0, 0.1])
def test_five_random_fleets_within_one_per_cent(number, keep):
    seed = public_root(77).child(number)
    members = 5 + int(seed.child("members").integers(10, count=1)[0])
    rates = [tuple(10 ** (5 + 3 * seed.child("rate", k).uniforms(2))) for k in range(members)]
    owners = tuple(seed.child("owners").permutation(members)[: 2 + number].tolist())
    capacities = (0.2 + seed.child("capacity").uniforms(len(owners))).tolist()
    participants = tuple(sorted(seed.child("who").permutation(members)[: members - number].tolist()))
    measured = simulated(rates, owners, capacities, participants, keep)
    fleet = Fleet(tuple(Peer(f"p{k}", float(up), float(down)) for k, (up, down) in enumerate(rates)))
    planned = scenario(
        n=N, fleet=fleet, aggregators=owners, shares=capacities, participants=participants, keep=keep,
        header=HEADER_BYTES, chunk=CHUNK,
    )  # fmt: skip
    method = "eris" if keep == 1 else "eris+dsc"
    assert distribution_time(method, planned) == pytest.approx(measured.seconds, rel=0.01)
    assert traffic(method, planned).network == pytest.approx(measured.total, rel=0.01)
    if keep == 1:  # nothing is random then: to the byte
        assert traffic(method, planned).network == measured.total


def test_neither_imports_the_other():
    for name, other in (("eris.planner", "eris.simulate"), ("eris.simulate", "eris.planner")):
        package = importlib.import_module(name)
        modules = [name, *(found.name for found in pkgutil.walk_packages(package.__path__, name + "."))]
        for module in modules:
            tree = ast.parse(Path(importlib.util.find_spec(module).origin).read_text(encoding="utf-8"))
            imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
            imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
            assert not any(entry.startswith(other) for entry in imported), module
    assert eris.planner.__all__ == sorted(
        eris.planner.__all__, key=lambda name: (name != name.upper(), name[0].islower(), name)
    )
