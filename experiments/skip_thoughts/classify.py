"""Logistic regression on frozen vectors, its C chosen by nested cross-validation, all folds solved at once.

A problem is scikit-learn's LogisticRegression(C=C, solver="liblinear"): minimise 1/2 |w|^2 + C sum log(1 + exp(-y w x)) over
its training rows, x with a constant 1 whose weight is penalised too. All folds are one batch of Newton steps whose
systems are solved by conjugate gradients; their products with the data are two large matrix products a turn, whatever
the number of folds, and each C starts from the last one's solutions.

Letters: N sentences, D features (the constant included), K problems.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse

GRID = tuple(2.0**i for i in range(9))  # the values of C


class Folds(NamedTuple):
    """Rows are in shuffled order. train (N, K) marks the training rows of a problem, test (N, K) those it is judged by;
    the first `outer` problems are the outer folds, then come the inner ones of the first outer fold, and so on."""

    order: np.ndarray
    train: np.ndarray
    test: np.ndarray
    outer: int


def folds(count: int, outer: int = 10, seed: int = 1234) -> Folds:
    """The protocol's: shuffled once by numpy's RandomState(seed), then `outer` blocks in that order; in the training part
    of each, `outer` blocks again."""
    order = np.arange(count)
    np.random.RandomState(seed).shuffle(order)
    train, test = [], []
    blocks = np.array_split(np.arange(count), outer)
    for block in blocks:
        test.append(_marked(count, block))
        train.append(~test[-1])
    for block in blocks:
        rest = np.setdiff1d(np.arange(count), block)
        for inner in np.array_split(rest, outer):
            test.append(_marked(count, inner))
            train.append(_marked(count, rest) & ~test[-1])
    return Folds(order, np.stack(train, 1), np.stack(test, 1), outer)


def _marked(count: int, rows: np.ndarray) -> np.ndarray:
    mark = np.zeros(count, bool)
    mark[rows] = True
    return mark


def nested(
    x: Any, labels: np.ndarray, outer: int = 10, seed: int = 1234
) -> tuple[np.ndarray, np.ndarray]:
    """x (N, D) dense or scipy.sparse, labels (N,) 0 or 1 -> (accuracy in % of each outer fold, the C it chose).

    Raises ValueError if some fold's training rows have one label only.
    """
    f = folds(len(labels), outer, seed)
    x, y = _with_constant(x[f.order]), np.asarray(labels)[f.order] > 0
    share = (f.train & y[:, None]).sum(0) / f.train.sum(0)
    if share.min() == 0 or share.max() == 1:
        raise ValueError(
            f"of {len(labels)} sentences, {int(y.sum())} are labelled 1: a fold has one label only"
        )
    scores = np.zeros((len(GRID), f.train.shape[1]))
    w = np.zeros((x.shape[1], f.train.shape[1]), np.float32)
    for i, c in enumerate(GRID):
        w = solve(x, y, f.train, c, w)
        right = ((x @ w > 0) == y[:, None]) & f.test
        scores[i] = 100 * right.sum(0) / f.test.sum(0)
    chosen = (
        scores[:, outer:].reshape(len(GRID), outer, -1).mean(-1).argmax(0)
    )  # of equals, the smallest C
    return scores[chosen, np.arange(outer)], np.array(GRID)[chosen]


def _with_constant(x: Any) -> Any:
    if scipy.sparse.issparse(x):
        return scipy.sparse.csr_array(
            scipy.sparse.hstack([x, np.ones((x.shape[0], 1))]), dtype=np.float32
        )
    return np.concatenate([x, np.ones((len(x), 1))], axis=1).astype(np.float32)


def solve(
    x: Any,
    y: np.ndarray,
    train: np.ndarray,
    c: float,
    w: np.ndarray,
    tolerance: float = 1e-4,
) -> np.ndarray:
    """The minimisers (D, K) for one C, from the start w (D, K): x (N, D), y (N,) bool, train (N, K) bool.

    A problem is solved when its gradient is `tolerance` times that of w = 0, times the rarer label's share: liblinear's rule.
    """
    w = w.copy()
    positive = (train & y[:, None]).sum(0)
    rarer = np.minimum(positive, train.sum(0) - positive) / train.sum(0)
    first = np.linalg.norm(c * (x.T @ (train * (np.float32(0.5) - y[:, None]))), axis=0)
    goal = (tolerance * rarer * first).astype(np.float32)
    precondition = None
    margins = x @ w
    todo = np.arange(w.shape[1])
    for _ in range(30):
        rows = train[:, todo]
        p = _sigmoid(margins[:, todo])
        gradient = w[:, todo] + np.float32(c) * (x.T @ (rows * (p - y[:, None])))
        open_ = np.linalg.norm(gradient, axis=0) > goal[todo]
        if not open_.any():
            break
        todo, rows, p, gradient = (
            todo[open_],
            rows[:, open_],
            p[:, open_],
            gradient[:, open_],
        )
        curvature = (rows * p * (1 - p)).astype(np.float32)
        if precondition is None:
            precondition = _preconditioner(x, c * curvature.mean(1))
        step, moved = _newton(x, np.float32(c), curvature, -gradient, precondition)
        length = _line_search(
            y, rows, np.float32(c), margins[:, todo], moved, w[:, todo], step
        )
        w[:, todo] += length * step
        margins[:, todo] += length * moved
    return w


def _sigmoid(a: np.ndarray) -> np.ndarray:
    return np.float32(0.5) * np.tanh(np.float32(0.5) * a) + np.float32(0.5)


def _preconditioner(x: Any, weights: np.ndarray):
    """r (D, K) -> H^-1 r for a Hessian H = I + x' diag(weights) x that is near those of all folds; sparse: its diagonal."""
    if scipy.sparse.issparse(x):
        diagonal = np.float32(1) + x.power(2).T @ weights.astype(np.float32)
        return lambda r: r / diagonal[:, None]
    scaled = x * np.sqrt(weights, dtype=np.float32)[:, None]
    hessian = scaled.T @ scaled
    hessian[np.diag_indices_from(hessian)] += 1
    factor = scipy.linalg.cho_factor(hessian, overwrite_a=True, check_finite=False)
    return lambda r: scipy.linalg.cho_solve(factor, r, check_finite=False)


def _newton(x, c, curvature, right, precondition, enough: float = 0.1, turns: int = 50):
    """Solve (I + c x' diag(curvature_k) x) d_k = right_k for all k to `enough` of |right_k|; returns d and x d."""
    d, moved, r = np.zeros_like(right), np.zeros_like(curvature), right.copy()
    z = precondition(r)
    direction, rz = z, (r * z).sum(0)
    goal = enough * np.linalg.norm(right, axis=0)
    for _ in range(turns):
        shown = x @ direction
        applied = direction + c * (x.T @ (curvature * shown))
        alpha = rz / np.maximum((direction * applied).sum(0), 1e-30)
        alpha[np.linalg.norm(r, axis=0) <= goal] = 0  # these are done
        d += alpha * direction
        moved += alpha * shown
        r -= alpha * applied
        if (np.linalg.norm(r, axis=0) <= goal).all():
            break
        z = precondition(r)
        after = (r * z).sum(0)
        direction = z + after / np.maximum(rz, 1e-30) * direction
        rz = after
    return d, moved


def _line_search(y, rows, c, margins, moved, w, step) -> np.ndarray:
    """For every problem the first of 1, 1/2, 1/4, ... that does not raise its objective, (K,)."""
    sign = np.where(y, np.float32(-1), np.float32(1))[:, None]

    def objective(t):
        loss = (rows * np.logaddexp(0, sign * (margins + t * moved))).sum(
            0, dtype=np.float64
        )
        return 0.5 * np.square(w + t * step).sum(0, dtype=np.float64) + c * loss

    length, before = np.ones(w.shape[1], np.float32), objective(np.float32(0))
    for _ in range(12):
        worse = objective(length) > before * (1 + 1e-6)
        if not worse.any():
            break
        length[worse] /= 2
    return length
