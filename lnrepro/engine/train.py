"""The only training loop: step, log, evaluate, save, in this order; resumed runs end with the same bits."""

import contextlib
import itertools
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from lnrepro.engine import (
    artifacts,
    distribute,
    experiment,
    optim,
    seeds,
    signals,
    workdir,
)
from lnrepro.engine.checkpoint import Saved, Store
from lnrepro.engine.errors import RunError, UserError
from lnrepro.engine.experiment import Experiment
from lnrepro.engine.metrics import Log, Meter, is_better
from lnrepro.engine.progress import Progress, table


@jax.jit
def _finite(state) -> jax.Array:
    """Whether every number of a state is finite."""
    return jnp.array(
        [
            jnp.isfinite(x).all()
            for x in jax.tree.leaves(state)
            if jnp.issubdtype(x.dtype, jnp.floating)
        ]
    ).all()


class State(NamedTuple):
    """All that a step changes."""

    step: jax.Array
    params: Any
    collections: Any
    opt_state: Any

    @property
    def vars(self) -> dict[str, Any]:
        """What an experiment's functions take."""
        return {"params": self.params, **self.collections}


def make_init(
    exp: Experiment, optimizer: optax.GradientTransformation
) -> Callable[[jax.Array], State]:
    """(key) -> the State before the first step."""

    def init(key):
        vars = dict(exp.init(key))
        params = vars.pop("params")
        return State(np.zeros([], np.int32), params, vars, optimizer.init(params))

    return init


def make_step(
    exp: Experiment, optimizer: optax.GradientTransformation, key: jax.Array
) -> Callable:
    """step(state, batches, axis) -> (state, metrics): one optimiser step for each of the K stacked batches.

    Step t's key is fold_in(key, t). `axis` is the pmap axis over which gradients, collections and metrics are averaged
    (each device then draws its own keys), or None under jit, where the whole batch is one array. With keys (S,) in place
    of one, S seeds take their steps at once: state (S, ...), batches (K, S, B, ...), metrics (K, S).
    """

    def one(state: State, batch, key, axis):
        step_key = jax.random.fold_in(key, state.step)
        if axis is not None:
            step_key = jax.random.fold_in(step_key, jax.lax.axis_index(axis))

        def loss(params):
            return exp.loss({"params": params, **state.collections}, batch, step_key)

        (value, (collections, metrics)), grads = jax.value_and_grad(loss, has_aux=True)(
            state.params
        )
        metrics = {"loss": value, **metrics}
        if axis is not None:
            grads, collections, metrics = jax.lax.pmean(
                (grads, collections, metrics), axis
            )
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        return State(state.step + 1, params, collections, opt_state), metrics

    def every(state, batch, axis):
        return (one if key.ndim == 0 else jax.vmap(one, in_axes=(0, 0, 0, None)))(
            state, batch, key, axis
        )

    def steps(state: State, batches, axis):
        if (
            jax.tree.leaves(batches)[0].shape[0] == 1
        ):  # a loop around one step only costs
            state, metrics = every(state, jax.tree.map(lambda x: x[0], batches), axis)
            return state, jax.tree.map(lambda x: x[None], metrics)
        return jax.lax.scan(lambda s, b: every(s, b, axis), state, batches)

    return steps


def due(step: int, every: int, total: int) -> bool:
    """Whether something done every `every` steps, and at the end, is to be done after `step`."""
    return step % every == 0 or step == total


def take(batches: Iterator[Any], n: int) -> Any:
    """The next `n` batches as one tree of arrays (n, B, ...). Raises UserError if their shapes differ."""
    if hasattr(batches, "take"):  # lnrepro.data.batches gathers them at once
        return batches.take(n)
    taken = list(itertools.islice(batches, n))
    if len(taken) < n:
        raise UserError(
            "the training batches ended before the last step; experiment.batches must go on for ever"
        )
    if n == 1:
        return jax.tree.map(lambda x: np.asarray(x)[None], taken[0])
    try:
        return jax.tree.map(lambda *x: np.stack(x), *taken)
    except ValueError:
        raise UserError(
            f"config.steps_per_call = {n} needs batches of one shape; these differ: set it to 1"
        ) from None


class Run:
    """One run: the config, where it lives, and how far it is."""

    def __init__(self, config: ConfigDict, folder: pathlib.Path, writing: bool = False):
        self.config, self.folder = config, folder
        self.seeds = seeds.of(config)
        self.exps = [experiment.load(seeds.single(config, seed)) for seed in self.seeds]
        self.total, self.per_epoch = (
            experiment.total_steps(config),
            experiment.steps_per_epoch(config),
        )
        mesh = config.get("mesh") or {}
        self.placement = distribute.make(
            config.placement, config.batch_size, len(self.seeds), **mesh
        )
        self.optimizer = optim.make(config.optimizer)
        self.keys = [
            jax.random.split(jax.random.key(seed)) for seed in self.seeds
        ]  # for init, and for the loop
        self.store = Store(folder / "checkpoints", writing)
        self.main = jax.process_index() == 0

    def every(self, steps: int) -> int:
        """0 in the config means once an epoch."""
        return steps or self.per_epoch

    def initial(self) -> State:
        """The state before the first step, as numpy arrays."""
        init = jax.jit(make_init(self.exps[0], self.optimizer))
        return seeds.stack([jax.tree.map(np.array, init(key)) for key, _ in self.keys])

    def chosen(self) -> Saved | None:
        """The best checkpoint, or the last one where no best is kept; None before the first. Closes the store."""
        try:
            like = self.initial()
            return self.store.restore("best", like) or self.store.restore("last", like)
        finally:
            self.store.close()

    def step(self) -> Callable:
        """`make_step` of this run."""
        return make_step(
            self.exps[0], self.optimizer, seeds.stack([key for _, key in self.keys])
        )

    def batches(self, start_step: int) -> Iterator[Any]:
        """The training batches, those of all seeds together."""
        streams = [exp.batches(start_step) for exp in self.exps]
        return streams[0] if len(streams) == 1 else seeds.Together(streams, take)

    def evaluate(
        self, vars, splits: tuple[str, ...]
    ) -> tuple[dict[str, float], list[pathlib.Path]]:
        """Numbers as SPLIT/NAME, of several seeds as `seeds.spread` has them, and the artifacts that were written."""
        each, paths = [], []
        for exp, part, seed in zip(
            self.exps, seeds.parts(vars, len(self.exps)), self.seeds, strict=True
        ):
            folder = (
                self.folder
                / "artifacts"
                / (f"seed{seed}" if len(self.seeds) > 1 else "")
            )
            each.append({})
            for split in splits:
                values = exp.evaluate(part, split)
                if not self.main:
                    values = {
                        k: v
                        for k, v in values.items()
                        if np.ndim(v) == 0 and not isinstance(v, str)
                    }
                found, written = artifacts.write(folder, values)
                each[-1] |= {f"{split}/{name}": value for name, value in found.items()}
                paths += written
        if len(each) == 1:
            return each[0], paths
        return seeds.spread(
            {name: [numbers[name] for numbers in each] for name in each[0]}, self.seeds
        ), paths


def train(config: ConfigDict, folder: pathlib.Path) -> dict[str, float]:
    """Train `config` in `folder` to its last step, from its newest checkpoint if there is one; returns the last numbers.

    Raises UserError for what the user can mend, RunError for a run that failed, signals.Stopped after SIGTERM or SIGINT.
    """
    run = Run(config, folder, writing=True)
    fingerprint = _fingerprint(config)
    ours = workdir.lock(folder) if run.main else contextlib.nullcontext(lambda: None)
    with workdir.storage_errors(folder), ours as held:
        if run.main:
            workdir.open_run(folder, config, fingerprint)
        results = folder / "results.json"
        if results.exists():
            if run.main:
                print(
                    f"{folder} is finished ({run.total} steps); --evaluate shows its numbers again"
                )
            return {}
        try:
            final, paths = _loop(run, held)
        finally:
            run.store.close()
        held()
        if run.main:
            if config.curves:
                title = f"{config.experiment.rpartition('.')[2]}, {config.norm}, data: {config.data.name}"
                paths = [artifacts.draw_curves(folder, config.curves, title), *paths]
            workdir.write_json(results, final)
            table(
                f"{config.experiment} norm={config.norm} on {config.data.name}, {run.total} steps",
                {
                    name: value
                    for name, value in final.items()
                    if not seeds.is_one(name)
                },
                [
                    f"numbers    {folder / 'metrics.jsonl'}",
                    *(f"picture    {p}" for p in paths),
                ],
            )
        return final


def _loop(
    run: Run, held: Callable[[], None]
) -> tuple[dict[str, float], list[pathlib.Path]]:
    config, placement = run.config, run.placement
    state = run.initial()
    saved = run.store.restore("last", state)
    step, notes = (saved.step, saved.notes) if saved else (0, {})
    state = placement.place(saved.state if saved else state)
    best, meter = notes.get("best"), Meter(notes.get("meter"))
    paths: dict[pathlib.Path, None] = dict.fromkeys(
        pathlib.Path(p) for p in notes.get("artifacts", ())
    )
    numbers = dict(notes.get("numbers", {}))

    progress = Progress(run.total, step, quiet=not run.main)
    progress.say(_header(run, step))
    log = (
        Log(run.folder, config.data.name, step, notes.get("records", 0))
        if run.main
        else None
    )
    compiled = placement.compile(run.step(), state)
    batches = run.batches(step)
    log_every, eval_every, save_every = (
        run.every(config[f"{n}_every"]) for n in ("log", "eval", "save")
    )

    def record(at: int, values: dict[str, float], important: bool):
        numbers.update(values)
        if log:
            log.write(at, at / run.per_epoch, values)
        progress.metrics(at, values, important)

    def drain(block: bool):
        for at, means in meter.drain(placement.metrics, block):
            record(
                at,
                seeds.spread(
                    {f"train/{name}": value for name, value in means.items()}, run.seeds
                ),
                False,
            )

    def save(names: list[str]):
        held()
        drain(block=True)
        if not _finite(
            state
        ):  # the loss of the step that broke them may have been a number
            raise RunError(
                f"the parameters or the optimiser's moments are not finite after step {step}: stopped; the last good "
                "checkpoint is kept. Try a smaller config.optimizer.learning_rate or config.optimizer.clip > 0"
            )
        notes = {
            "best": best,
            "meter": meter.state(),
            "numbers": dict(numbers),
            "artifacts": [str(p) for p in paths],
        }
        if log:
            log.flush()
            notes["records"] = log.records
        host = placement.host(state)
        for name in names:
            run.store.save(name, step, host, notes)

    with contextlib.ExitStack() as stack_of, signals.collect() as caught:
        stack_of.callback(progress.close)
        stack_of.callback(lambda: hasattr(batches, "close") and batches.close())
        while step < run.total:
            # Calls never cross a point where something is due, and lie on the grid of steps_per_call, so that a
            # resumed run makes the same calls.
            ends = (
                e - step % e
                for e in (config.steps_per_call, log_every, eval_every, save_every)
            )
            n = min(*ends, run.total - step)
            state, metrics = compiled(state, placement.batch(take(batches, n)))
            meter.add(step, metrics)
            step += n
            progress.step(step)
            if due(step, log_every, run.total):
                meter.cut(step)
            drain(block=False)
            stopping = caught.agreed(step, log_every)
            names = ["last"] if due(step, save_every, run.total) or stopping else []
            if due(step, eval_every, run.total) and config.eval_splits:
                drain(block=True)
                held()
                values, written = run.evaluate(
                    placement.vars(state).vars, config.eval_splits
                )
                record(step, values, True)
                paths |= dict.fromkeys(written)
                name = config.best.metric
                if name and name not in values:
                    raise UserError(
                        f"config.best.metric = {name!r} is not measured; there are {', '.join(values)}"
                    )
                if name and is_better(
                    values[name], best and best["value"], config.best.mode
                ):
                    best = {"metric": name, "value": values[name], "step": step}
                    names.insert(0, "best")
            if names:
                save(names)
            if stopping:
                run.store.wait()
                raise signals.Stopped(stopping, step)
        drain(block=True)
        run.store.wait()
        held()
        if config.final_splits:
            progress.say(
                f"trained and saved; final evaluation of {', '.join(config.final_splits)}"
            )
        with caught.at_once(step):  # it may take hours, and all is saved
            final, written = run.evaluate(
                placement.vars(state).vars, config.final_splits
            )
        numbers |= final
        if log:
            if final:
                log.write(step, step / run.per_epoch, final)
            log.close()
        if best:
            numbers |= {
                f"best {best['metric']}": best["value"],
                "best step": best["step"],
            }
        return numbers, list(paths | dict.fromkeys(written))


def evaluate(config: ConfigDict, folder: pathlib.Path) -> dict[str, float]:
    """Evaluate the best checkpoint of `folder` (the last one where no best is kept) on every split of the config."""
    if not (folder / "config.json").exists():
        raise UserError(
            f"--evaluate: {folder} holds no run; train it first or give its --workdir"
        )
    workdir.open_run(folder, config, _fingerprint(config))
    run = Run(config, folder)
    saved = run.chosen()
    if saved is None:
        raise UserError(f"--evaluate: {folder} has no checkpoint yet")
    vars = run.placement.vars(run.placement.place(saved.state)).vars
    with workdir.storage_errors(folder):
        numbers, paths = run.evaluate(vars, (*config.eval_splits, *config.final_splits))
        if run.main:
            workdir.write_json(
                folder / "evaluation.json", {"step": saved.step, **numbers}
            )
    if run.main:
        table(
            f"{folder} at step {saved.step}",
            numbers,
            [f"picture    {p}" for p in paths],
        )
    return numbers


def _fingerprint(config: ConfigDict) -> str:
    from lnrepro import data

    return data.fingerprint(config.data.name, config.data.get("dir") or None)


def _header(run: Run, step: int) -> str:
    c = run.config
    devices = f"{jax.device_count()} {jax.devices()[0].platform} device{'s' * (jax.device_count() > 1)}"
    start = f"resuming at step {step} of" if step else "training"
    which = (
        f"seed={c.seed}"
        if len(run.seeds) == 1
        else f"seeds={run.seeds[0]}..{run.seeds[-1]}"
    )
    return f"{c.experiment} norm={c.norm} data={c.data.name} {which}: {start} {run.total} steps on {devices}, in {run.folder}"
