"""Random graphs in which every node has the same number of neighbours, drawn from the public root.

A ring lattice under a random numbering is stirred by exchanging the ends of random pairs of edges: no degree changes,
and by symmetry any two nodes are neighbours with the same probability, degree/(nodes − 1).
"""

from __future__ import annotations

from eris.errors import ConfigError
from eris.seeds import Seed

__all__ = ["Neighbours", "check_degree", "regular_graph"]

Neighbours = tuple[tuple[int, ...], ...]  # of each node, ascending

_EXCHANGES_PER_EDGE = 10


def regular_graph(nodes: int, degree: int, seed: Seed) -> Neighbours:
    """Return the neighbours of every node.

    Each has `degree` of them; `seed` is public, so that everybody has the same graph.

    >>> from eris.seeds import public_root
    >>> [len(neighbours) for neighbours in regular_graph(6, 3, public_root(1))]
    [3, 3, 3, 3, 3, 3]
    """
    check_degree(nodes, degree)
    if 2 * degree > nodes - 1:  # nearly complete: draw the missing edges instead
        missing = regular_graph(nodes, nodes - 1 - degree, seed)
        return tuple(
            tuple(other for other in range(nodes) if other != node and other not in missing[node])
            for node in range(nodes)
        )
    edges = _stirred(_lattice(nodes, degree, seed.child("order").permutation(nodes).tolist()), seed.child("stir"))
    neighbours: list[list[int]] = [[] for _ in range(nodes)]
    for one, other in edges:
        neighbours[one].append(other)
        neighbours[other].append(one)
    return tuple(tuple(sorted(found)) for found in neighbours)


def check_degree(nodes: int, degree: int) -> None:
    """Refuse a degree that no graph of this size can have."""
    if degree >= nodes or degree * nodes % 2:
        raise ConfigError(
            f"{nodes} nodes cannot have {degree} neighbours each",
            fix="use a degree below the number of nodes; one of the two must be even",
        )


def _lattice(nodes: int, degree: int, names: list[int]) -> list[tuple[int, int]]:
    edges = [(k, (k + step) % nodes) for k in range(nodes) for step in range(1, degree // 2 + 1)]
    if degree % 2:
        edges += [(k, k + nodes // 2) for k in range(nodes // 2)]
    return [(names[one], names[other]) for one, other in edges]


def _stirred(edges: list[tuple[int, int]], seed: Seed) -> list[tuple[int, int]]:
    if len(edges) < 2:
        return edges
    present = {frozenset(edge) for edge in edges}
    count = _EXCHANGES_PER_EDGE * len(edges)
    pairs = seed.child("pairs").integers(len(edges), count=2 * count).reshape(count, 2).tolist()
    flips = seed.child("flips").integers(2, count=count).tolist()
    for (first, second), flip in zip(pairs, flips, strict=True):
        (a, b), (c, d) = edges[first], edges[second] if flip else edges[second][::-1]
        one, other = frozenset((a, d)), frozenset((c, b))
        if len({a, b, c, d}) == 4 and one not in present and other not in present:
            present -= {frozenset((a, b)), frozenset((c, d))}
            present |= {one, other}
            edges[first], edges[second] = (a, d), (c, b)
    return edges
