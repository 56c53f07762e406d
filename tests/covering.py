"""Which cases of a product of options run by default."""

import itertools

import pytest


def covering(*axes, strength=2, mark=pytest.mark.slow):
    """All combinations of the values of some axes, of which few run by default.

    By default run so many that every `strength` values of different axes meet in one
    of them, and each value in about as many as the others of its axis. The others are
    marked.

    Args:
      axes: the values of each option.
      strength: 1 for every value once, 2 for every pair of values of two options.
      mark: the mark of the other combinations.

    Returns:
      A list of `pytest.param`.

    >>> cases = covering("ab", "xyz", strength=1)
    >>> ["".join(case.values) for case in cases if not case.marks]
    ['ax', 'by', 'az']
    """
    cases = list(itertools.product(*axes))
    places = list(itertools.combinations(range(len(axes)), strength))

    def meetings(case):
        return {tuple((place, case[place]) for place in chosen) for chosen in places}

    missing, chosen = set().union(*map(meetings, cases)), []

    def worth(case):
        """How many meetings a case brings, and how rare its values are so far."""
        seen = sum(a == b for one in chosen for a, b in zip(case, one, strict=True))
        return len(meetings(case) & missing), -seen

    while missing:
        # The first of the best.
        chosen.append(max(cases, key=worth))
        missing -= meetings(chosen[-1])
    others = [pytest.param(*case, marks=mark) for case in cases if case not in chosen]
    return [pytest.param(*case) for case in chosen] + others
