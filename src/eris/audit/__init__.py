"""What could an observer learn? Attacks on the events of a run, each reported with its chance level.

An audit trains with canaries planted among the members' samples, listens to what every observer saw, and scores how
well their membership can be told from it. Read it in this order:

================ ===========================================================================================
`observer`       who observes: an aggregator, a coalition, a server, a neighbour, the wire
`transcript`     what happened in a round; `estimate` and `neighbour`: a victim's update as an observer knows it
`canaries`       whose membership is asked about
`observation`    what an attack is given; `attack`: the attacks, by name
`scoring`        how good their scores are, with chance level, interval (`intervals`) and ε
`membership`     the audit that listens to a run; `membership_run` trains, `membership_sweep` and `comparison` repeat
`inference`      which classes a member holds, and whose sample it is
`poisoning`      what members that do harm do to the model; `malicious`: what a false mean lays open
`reconstruction` the attacks that recover samples, with a chain of their own; `similarity` judges pictures
`text`           the attacks that recover words from the updates of transformers
================ ===========================================================================================

See docs/audit.md for what the figures mean and what they do not.
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
