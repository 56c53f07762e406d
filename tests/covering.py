"""Which cases of a product of options run by default."""

import itertools

import pytest


def covering(*axes, strength=2, mark=pytest.mark.slow):
    """All combinations of the values of some axes, of which few run by default.

    By default run so many that every `strength` values of different axes meet in one
    of them. The others are marked.

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
    while missing:
        # The first of those that bring most.
        best = max(cases, key=lambda case: len(meetings(case) & missing))
        chosen.append(best)
        missing -= meetings(best)
    others = [pytest.param(*case, marks=mark) for case in cases if case not in chosen]
    return [pytest.param(*case) for case in chosen] + others
