"""The paper by name: its tables and figures as experiments that anybody can run, and its claims with a verdict.

An *experiment* is plain data in one file of `eris.paper.experiments`: arms × points of an axis × folds, which make
cells. A cell is one training, attack or calculation; it is done by a worker process and kept in a small file.
"""

from __future__ import annotations

__all__: list[str] = []
