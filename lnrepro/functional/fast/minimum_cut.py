"""A minimum cut of a graph of equations.

References:
  Edmonds and Karp, Theoretical improvements in algorithmic efficiency for network flow
  problems, 1972.
"""

import collections
import itertools
import math
from collections.abc import Callable
from typing import Any

from lnrepro.functional.fast.equations import variables


def minimum_cut(
    wanted: list,
    made_by: dict,
    *,
    can_repeat: Callable,
    can_stack: Callable = lambda v: True,
    at_hand: Callable = lambda v: False,
) -> dict:
    """Return the variables of the fewest bytes from which `wanted` follows.

    Args:
      wanted: variables, in a fixed order.
      made_by: {variable: equation}.
      can_repeat: (equation) -> whether it may be evaluated again.
      can_stack: (variable) -> whether it may be in the result.
      at_hand: (variable) -> whether it is there at no cost.

    Returns:
      {variable: None}, in a fixed order.
    """
    # By maximum flow: a variable is an edge from (v, "in") to (v, "out") of its size.
    # The flow enters where a variable cannot be made again and leaves where it is
    # wanted.
    capacity = collections.defaultdict(dict)

    def connect(a, b, size):
        capacity[a][b] = size
        capacity[b].setdefault(a, 0)

    wanted = [v for v in wanted if not at_hand(v)]
    seen, waiting = {}, list(wanted)
    for v in wanted:
        connect((v, "out"), "sink", float("inf"))
    while waiting:
        v = waiting.pop()
        if v in seen:
            continue
        seen[v] = None
        connect((v, "in"), (v, "out"), _size(v) if can_stack(v) else float("inf"))
        if v not in made_by or not can_repeat(made_by[v]):
            connect("source", (v, "in"), float("inf"))
            continue
        for u in variables(made_by[v].invars):
            if not at_hand(u):
                connect((u, "out"), (v, "in"), float("inf"))
                waiting.append(u)

    # More flow goes along the shortest path that has room for it, until none has.
    reached = _reached(capacity)
    while "sink" in reached:
        path: list[Any] = ["sink"]
        while path[-1] != "source":
            path.append(reached[path[-1]])
        edges = [(a, b) for b, a in itertools.pairwise(path)]
        flow = min(capacity[a][b] for a, b in edges)
        for a, b in edges:
            capacity[a][b] -= flow
            # What flows on an edge may be sent back.
            capacity[b][a] += flow
        reached = _reached(capacity)
    # The cut is where the flow has used up all room.
    return {v: None for v in seen if (v, "in") in reached and (v, "out") not in reached}


def _reached(capacity):
    """{node: the node before it} for all nodes that more flow can reach."""
    before: dict[Any, Any] = {"source": None}
    waiting = collections.deque(before)
    while waiting:
        a = waiting.popleft()
        for b, left in capacity[a].items():
            if left > 0 and b not in before:
                before[b] = a
                waiting.append(b)
    return before


def _size(v):
    """Bytes of a variable. Symbolic sizes of jax.export count as 1."""
    known = [n for n in v.aval.shape if isinstance(n, int)]
    # One array is better than two of half its size.
    return v.aval.dtype.itemsize * math.prod(known) + 1
