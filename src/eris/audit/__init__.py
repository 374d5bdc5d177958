"""Attacks on the events of a run: what could an observer learn? Each is reported with its chance level.

A membership audit trains with canaries planted among the members' samples, listens to what every observer saw, and
scores how well an attack tells which canaries were trained on. The modules, in reading order:

================ ===========================================================================================
`observer`       the observers (an aggregator, a coalition, a server, a neighbour, the wire) and a round's transcript
`estimate`       a victim's update as an observer knows it
`canaries`       the samples whose membership is asked about
`attack`         what an attack is and what it is given; `attacks`: the known ones, by name
`scoring`        how good an attack's scores are, with chance level, interval (`intervals`) and ε
`membership`     the audit that listens to a run; `membership_run` trains, `membership_sweep` and `comparison` repeat
`inference`      which classes a member holds, and whose sample it is
`poisoning`      how much malicious members damage the model; `malicious`: what a false mean reveals
`reconstruction` the attacks that recover samples, with a chain of their own; `similarity` judges pictures
`text`           the attacks that recover words from the updates of transformers
================ ===========================================================================================

docs/audit.md says what the figures mean and what they do not.
"""

from __future__ import annotations

from eris.audit.attack import MembershipAttack, Observation
from eris.audit.attacks.by_name import ATTACKS, attack_by_name, register_attack
from eris.audit.canaries import AuditableTask, Canaries, PlantedTask, plant, plant_in
from eris.audit.intervals import epsilon_lower_bound
from eris.audit.membership import MembershipAudit, MembershipResult
from eris.audit.observer import Observer, Vantage, parse_observer
from eris.audit.scoring import guess, guess_counts

__all__ = [
    "ATTACKS",
    "AuditableTask",
    "Canaries",
    "MembershipAttack",
    "MembershipAudit",
    "MembershipResult",
    "Observation",
    "Observer",
    "PlantedTask",
    "Vantage",
    "attack_by_name",
    "epsilon_lower_bound",
    "guess",
    "guess_counts",
    "parse_observer",
    "plant",
    "plant_in",
    "register_attack",
]
