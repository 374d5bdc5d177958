"""Reproduce the paper: its tables and figures as experiments that anybody can run, and its claims with a verdict.

An *experiment* is plain data in one file of `eris.paper.experiments`: arms × points of an axis × folds, which make
cells. A cell is one training, attack or calculation; it is done by a worker process and kept in a small file.

    experiments, catalogue          what is run; experiment, cell, run, worker, result: how
    printed_tables                  the values that the paper prints
    table_rules, panels             the rules that its communication tables follow
    difference, flaws               where the honest forms differ from those rules; what is wrong with the statements
    duration_figures                its plots of distribution time
    claims, page, table, picture    verdicts, and how they are shown
"""

from __future__ import annotations

__all__: list[str] = []
