"""One round of ERIS with its three real roles in one process: run it, or step through it with a debugger.

python examples/one_round.py
"""

from functools import partial

import numpy as np

from eris.compose import compose, initial_seed, training_seed
from eris.config import load_config
from eris.local.numpy_task import QuadraticTask
from eris.protocol.in_process import InProcess
from eris.protocol.rules import Rules
from eris.seeds import private_root, public_root

np.set_printoptions(precision=3, suppress=True)
task = QuadraticTask.synthetic(members=4, n=9, seed=public_root(1))
config = load_config(changes=["method=eris", "members=4", "aggregators=3"])
made = compose(config, task.spec, [task.samples(k) for k in range(4)])
root = partial(private_root, config.seed)
rules = Rules(made.run, made.aggregators)
roles = InProcess(made.recipe, rules, made.roster, task.initial(initial_seed(config.seed)), root)


def train(member, plan):
    seed = training_seed(root(member.peer).child("round", plan.round))
    return task.train(member.peer, member.look(), {}, round=plan.round, seed=seed)


plan = roles.plan()
print(f"coordinator  plans round {plan.round}: members {plan.participants}, shard → aggregator {plan.assignment}")
roles.begin(plan)
uploads = roles.contribute(plan, train)
for upload in uploads:
    print(f"member {upload.member}     sends {upload.part.values()} for shard {upload.shard}")
for receipt in roles.upload(plan, uploads):
    print(f"aggregator {receipt.aggregator} has shard {receipt.shard} of member {receipt.member}")
outcomes = roles.cut(plan)
for shard in outcomes:
    print(f"aggregator {shard.manifest.aggregator} publishes {shard.values}, the mean of {shard.manifest.contributors}")
roles.publish(plan, outcomes)
verdict = roles.decide()
print(f"coordinator  commits {[(entry.shard, entry.hash[:8]) for entry in verdict.shards]}; it has seen no values")
before = roles.members[0].look().copy()
roles.conclude(verdict)
for peer, member in roles.members.items():
    print(f"member {peer}     moves by {member.look() - before}; its digest is now {member.replica.digest()[:8]}")
