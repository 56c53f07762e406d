"""Tests of columns whose examples differ in length."""

import numpy as np
import pytest

from lnrepro.data.ragged import Ragged


def test_rows_are_read_one_by_one():
    ragged = Ragged(np.arange(5), np.array([0, 2, 2, 5]))
    assert [row.tolist() for row in ragged] == [[0, 1], [], [2, 3, 4]]
    assert ragged.lengths.tolist() == [2, 0, 3]
    assert ragged[-1].tolist() == [2, 3, 4]
    with pytest.raises(IndexError):
        ragged[3]
