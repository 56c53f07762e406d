"""Logistic regression whose C is chosen by nested cross-validation.

A problem is scikit-learn's LogisticRegression(C=C, solver="liblinear"): minimise

    1/2 |w|^2 + C sum_n log(1 + exp(-y_n w x_n))

over its training rows, where x has a constant 1 whose weight is penalised too.

Ten outer and a hundred inner folds with nine values of C are 990 problems. All folds
are solved together by Newton steps, whose linear systems are solved by conjugate
gradients. Each turn takes two large matrix products, whatever the number of folds. Each
C starts from the solutions of the one before. The tests compare the results with
scikit-learn.

Shape letters: N sentences, D features (with the constant), K problems.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse

# The values of C to choose from.
GRID = tuple(2.0**i for i in range(9))
NEWTON_STEPS = 30
# Conjugate gradients stop at this part of the right-hand side, or after so many turns.
CG_TOLERANCE = 0.1
CG_TURNS = 50
HALVINGS = 12


class OneLabel(ValueError):
    """The training rows of a fold have one label only."""


class Folds(NamedTuple):
    """The problems of nested cross-validation.

    The first `outer` problems are the outer folds. Then come the inner folds of the
    first outer fold, then those of the second, and so on.

    Attributes:
      order: [N], the shuffled order of the rows that the masks refer to.
      train: [N, K], the rows that a problem is trained on.
      test: [N, K], the rows that it is tested on.
      outer: number of outer folds.
    """

    order: np.ndarray
    train: np.ndarray
    test: np.ndarray
    outer: int


class Result(NamedTuple):
    """The result of nested cross-validation.

    Attributes:
      accuracy: [outer], in percent.
      c: [outer], the value of C that each outer fold chose.
    """

    accuracy: np.ndarray
    c: np.ndarray


def folds(count: int, outer: int = 10, seed: int = 1234) -> Folds:
    """Make the folds of the protocol of Kiros et al. (2015).

    The rows are shuffled once by numpy's RandomState(seed) and split into `outer`
    blocks in that order. The training part of each fold is split into `outer` blocks
    again.

    Args:
      count: N.
      outer: number of outer folds, and of inner folds for each.
      seed: seed of the shuffle.
    """
    order = np.arange(count)
    np.random.RandomState(seed).shuffle(order)
    train, test = [], []

    def add(test_rows, of_rows):
        # A fold is a mask over all rows, so that all problems share the matrix
        # products.
        is_test = np.isin(np.arange(count), test_rows)
        test.append(is_test)
        train.append(np.isin(np.arange(count), of_rows) & ~is_test)

    rows = np.arange(count)
    blocks = np.array_split(rows, outer)
    for block in blocks:
        add(block, rows)
    for block in blocks:
        rest = np.setdiff1d(rows, block)
        for inner_block in np.array_split(rest, outer):
            add(inner_block, rest)
    return Folds(order, np.stack(train, 1), np.stack(test, 1), outer)


def nested_cross_validation(
    x: Any, labels: np.ndarray, outer: int = 10, seed: int = 1234
) -> Result:
    """Choose C on inner folds, and test on outer folds.

    Of equally good values, the smallest C is chosen.

    Args:
      x: [N, D - 1], dense or scipy.sparse.
      labels: [N], 0 or 1.
      outer: number of outer folds, and of inner folds for each.
      seed: seed of the shuffle.

    Raises:
      OneLabel: the training rows of a fold have one label only.
    """
    f = folds(len(labels), outer, seed)
    x = _with_constant(x[f.order])
    y = np.asarray(labels)[f.order] > 0
    # scikit-learn refuses rows of one label too.
    positive = (f.train & y[:, None]).sum(0) / f.train.sum(0)
    if positive.min() == 0 or positive.max() == 1:
        raise OneLabel(
            f"of {len(labels)} sentences, {int(y.sum())} are labelled 1: a fold has "
            "one label only"
        )
    problems = f.train.shape[1]
    accuracy = np.zeros((len(GRID), problems))
    w = np.zeros((x.shape[1], problems), np.float32)
    for i, c in enumerate(GRID):
        w = solve(x, y, f.train, c, w)
        is_right = (x @ w > 0) == y[:, None]
        accuracy[i] = 100 * (is_right & f.test).sum(0) / f.test.sum(0)
    # C is chosen on the inner folds, and the outer fold has not seen its test rows.
    of_inner_folds = accuracy[:, outer:].reshape(len(GRID), outer, -1).mean(-1)
    best = of_inner_folds.argmax(0)
    return Result(accuracy[best, np.arange(outer)], np.array(GRID)[best])


def _with_constant(x: Any) -> Any:
    ones = np.ones((x.shape[0], 1))
    if scipy.sparse.issparse(x):
        return scipy.sparse.csr_array(scipy.sparse.hstack([x, ones]), dtype=np.float32)
    return np.concatenate([x, ones], axis=1).astype(np.float32)


def solve(
    x: Any,
    y: np.ndarray,
    train: np.ndarray,
    c: float,
    w: np.ndarray,
    tolerance: float = 1e-4,
) -> np.ndarray:
    """Minimise all problems for one value of C.

    A problem is solved when its gradient is `tolerance` times the gradient at w = 0,
    times the share of the rarer label. This is liblinear's rule.

    Args:
      x: [N, D], dense or scipy.sparse, with the constant.
      y: [N], bool.
      train: [N, K], bool, the rows of each problem.
      c: C.
      w: [D, K], the start.
      tolerance: how small the gradient has to become, 1 at w = 0.

    Returns:
      The minimisers [D, K].
    """
    w = w.copy()
    c = np.float32(c)
    target = y[:, None]
    rows = train.sum(0)
    positive = (train & target).sum(0)
    rarer = np.minimum(positive, rows - positive) / rows
    # liblinear compares with the gradient at the start, w = 0, where p = 1/2.
    gradient_at_zero = c * (x.T @ (train * (np.float32(0.5) - target)))
    goal = tolerance * rarer * np.linalg.norm(gradient_at_zero, axis=0)
    goal = goal.astype(np.float32)
    precondition = None
    margins = x @ w
    unsolved = np.arange(w.shape[1])
    for _ in range(NEWTON_STEPS):
        mask = train[:, unsolved]
        p = _sigmoid(margins[:, unsolved])
        gradient = w[:, unsolved] + c * (x.T @ (mask * (p - target)))
        left = np.linalg.norm(gradient, axis=0) > goal[unsolved]
        if not left.any():
            break
        unsolved, mask, p = unsolved[left], mask[:, left], p[:, left]
        gradient = gradient[:, left]
        curvature = (mask * p * (1 - p)).astype(np.float32)
        if precondition is None:
            # The Hessians of all folds are similar, so one preconditioner serves all.
            precondition = _preconditioner(x, c * curvature.mean(1))
        # `change` is x times the step: the line search needs no product with x.
        step, change = _newton_step(x, c, curvature, -gradient, precondition)
        length = _line_search(
            y, mask, c, margins[:, unsolved], change, w[:, unsolved], step
        )
        w[:, unsolved] += length * step
        margins[:, unsolved] += length * change
    return w


def _sigmoid(a: np.ndarray) -> np.ndarray:
    return np.float32(0.5) * np.tanh(np.float32(0.5) * a) + np.float32(0.5)


def _preconditioner(x: Any, weights: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return r [D, K] -> H^-1 r for H = I + x^T diag(weights) x, or for its diagonal.

    The diagonal is taken where x is sparse.
    """
    if scipy.sparse.issparse(x):
        diagonal = np.float32(1) + x.power(2).T @ weights.astype(np.float32)

        def divide(r):
            return r / diagonal[:, None]

        return divide
    scaled = x * np.sqrt(weights, dtype=np.float32)[:, None]
    hessian = scaled.T @ scaled
    hessian[np.diag_indices_from(hessian)] += 1
    factor = scipy.linalg.cho_factor(hessian, overwrite_a=True, check_finite=False)

    def solve_hessian(r):
        return scipy.linalg.cho_solve(factor, r, check_finite=False)

    return solve_hessian


def _newton_step(x, c, curvature, right, precondition):
    """Solve (I + c x^T diag(curvature_k) x) d_k = right_k for all k.

    Returns:
      (d [D, K], x d [N, K])
    """
    d, xd, r = np.zeros_like(right), np.zeros_like(curvature), right.copy()
    z = precondition(r)
    direction = z
    rz = (r * z).sum(0)
    goal = CG_TOLERANCE * np.linalg.norm(right, axis=0)
    for _ in range(CG_TURNS):
        x_direction = x @ direction
        applied = direction + c * (x.T @ (curvature * x_direction))
        # One step length for each problem.
        alpha = rz / np.maximum((direction * applied).sum(0), 1e-30)
        # Solved problems stay as they are.
        alpha[np.linalg.norm(r, axis=0) <= goal] = 0
        d += alpha * direction
        xd += alpha * x_direction
        r -= alpha * applied
        if (np.linalg.norm(r, axis=0) <= goal).all():
            break
        z = precondition(r)
        new_rz = (r * z).sum(0)
        direction = z + new_rz / np.maximum(rz, 1e-30) * direction
        rz = new_rz
    return d, xd


def _line_search(y, mask, c, margins, change, w, step) -> np.ndarray:
    """Return the first of 1, 1/2, 1/4, ... that does not raise the objective, [K]."""
    sign = np.where(y, np.float32(-1), np.float32(1))[:, None]

    def objective(length):
        losses = mask * np.logaddexp(0, sign * (margins + length * change))
        penalty = np.square(w + length * step).sum(0, dtype=np.float64)
        return 0.5 * penalty + c * losses.sum(0, dtype=np.float64)

    length = np.ones(w.shape[1], np.float32)
    before = objective(np.float32(0))
    for _ in range(HALVINGS):
        is_worse = objective(length) > before * (1 + 1e-6)
        if not is_worse.any():
            break
        length[is_worse] /= 2
    return length
