"""What could an observer learn? Attacks on the events of a run, each reported with its chance level.

An audit trains with canaries planted among the members' samples, listens to what every observer saw, and scores how
well their membership can be told from it. See docs/audit.md for what the figures mean and what they do not.
"""

from __future__ import annotations

from eris.audit.attack import ATTACKS, Attack, attack_by_name
from eris.audit.binomial import epsilon_lower_bound
from eris.audit.canaries import AuditableTask, Canaries, Problem, plant, plant_in
from eris.audit.guesses import guess, guess_counts
from eris.audit.membership import Membership, MembershipAudit
from eris.audit.observer import Observer, Vantage, parse_observer

__all__ = [
    "ATTACKS",
    "Attack",
    "AuditableTask",
    "Canaries",
    "Membership",
    "MembershipAudit",
    "Observer",
    "Problem",
    "Vantage",
    "attack_by_name",
    "epsilon_lower_bound",
    "guess",
    "guess_counts",
    "parse_observer",
    "plant",
    "plant_in",
]
