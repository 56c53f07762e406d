"""Train one config of the paper: python -m lnrepro.main --config=configs/draw.py[:VARIANT] [--config.FIELD=VALUE ...]

Variants of every config: none (the embedded default: no download, minutes on two cores), paper (the paper's protocol on
the paper's data, see scripts/prepare.py), smoke (seconds). The run's directory holds config.json, metrics.jsonl,
TensorBoard events, checkpoints/ and artifacts/; the same command resumes an interrupted run exactly where it was saved.
"""

import ast
import difflib
import os
import pathlib
import re
import sys
import threading

from lnrepro.engine.errors import UserError, not_installed


def _missing_extra(e: ModuleNotFoundError) -> int:
    print(not_installed(e, "training"), file=sys.stderr)
    return UserError.exit_code


try:
    from absl import flags, logging
    from ml_collections import config_flags
except ModuleNotFoundError as e:
    sys.exit(_missing_extra(e))

_CONFIG = config_flags.DEFINE_config_file(
    "config",
    None,
    "FILE[:VARIANT], e.g. configs/mnist.py:paper; single fields as --config.seed=1. Required.",
    lock_config=True,
)
_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Where the run lives; runs/EXPERIMENT/VARIANT-NORM-seedSEED if not given.",
)
_EVALUATE = flags.DEFINE_boolean(
    "evaluate", False, "Only evaluate the best checkpoint of --workdir."
)
_DEVICES = flags.DEFINE_integer(
    "cpu_devices",
    0,
    "Split the CPU into this many devices (to try out several devices).",
)
_DISTRIBUTED = flags.DEFINE_boolean(
    "distributed", False, "One of several processes, found by themselves (TPU, SLURM)."
)
_COORDINATOR = flags.DEFINE_string(
    "coordinator", None, "HOST:PORT of process 0; implies --distributed."
)
_PROCESSES = flags.DEFINE_integer(
    "num_processes", None, "How many processes, with --coordinator."
)
_PROCESS = flags.DEFINE_integer(
    "process_id", None, "Which of them this is, with --coordinator."
)
_TIMEOUT = flags.DEFINE_integer(
    "peer_timeout", 120, "Seconds to wait for the other processes."
)
flags.adopt_module_key_flags(config_flags)


def run(argv: list[str]) -> None:
    """Parse the flags and train or evaluate. Raises UserError and its kin, and signals.Stopped."""
    config, variant = _parse(argv)
    # Orbax logs the tracebacks of failed saves, which reach the user as one line through RunError.
    logging.set_verbosity(logging.FATAL)

    import jax

    _compilation_cache(jax)
    if _DEVICES.value:
        jax.config.update("jax_num_cpu_devices", _DEVICES.value)
    if _DISTRIBUTED.value or _COORDINATOR.value:
        from lnrepro.engine import peers

        peers.initialize(
            _COORDINATOR.value, _PROCESSES.value, _PROCESS.value, _TIMEOUT.value
        )

    from lnrepro.engine import train, workdir

    folder = (
        pathlib.Path(_WORKDIR.value)
        if _WORKDIR.value
        else workdir.default(config, variant)
    )
    (train.evaluate if _EVALUATE.value else train.train)(config, folder)


def _parse(argv: list[str]):
    path = next(
        (a.split("=", 1)[1] for a in argv if a.startswith(("--config=", "-config="))),
        None,
    )
    file, _, variant = (path or "").partition(":")
    if path is not None and not pathlib.Path(file).is_file():
        near = difflib.get_close_matches(
            file, map(str, pathlib.Path("configs").glob("*.py")), 1, 0.4
        )
        raise UserError(
            f"--config={path}: there is no file {file}"
            + (f"; did you mean {near[0]}?" if near else "")
        )
    try:
        rest = flags.FLAGS(argv)
    except (
        flags.Error,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        SyntaxError,
        ImportError,
    ) as e:
        raise UserError(_flag_line(e, file)) from None
    if len(rest) > 1:
        raise UserError(
            f"unexpected argument {rest[1]!r}; flags start with --, see --help"
        )
    if path is None:
        raise UserError(
            f"--config is missing; there are {', '.join(configs()) or 'no configs here'}"
        )
    return _CONFIG.value, variant


def _flag_line(error: Exception, file: str) -> str:
    """absl's and ml_collections' complaint as one line, in terms of the command that was typed."""
    text = str(error.args[0]) if error.args else type(error).__name__
    if "Traceback" in text:  # get_config raised: its own message is the last line
        return text.strip().splitlines()[-1].partition(": ")[2]
    if mistyped := re.search(r'Did you mean "(.+?)" instead of "(.+?)"', text):
        return f"{file} has no field {mistyped[2]!r}; did you mean {mistyped[1]!r}?"
    if isinstance(error, (AttributeError, KeyError)):
        return f"{file} has no field {' '.join(text.split())}"
    return " ".join(text.split())


def configs() -> list[str]:
    """The configs of the checkout one stands in, sorted."""
    return sorted(
        str(p)
        for p in pathlib.Path("configs").glob("*.py")
        if not p.name.startswith("_")
    )


def _help() -> str:
    lines = [__doc__, "configs:"]
    for path in configs():
        doc = (
            ast.get_docstring(ast.parse(pathlib.Path(path).read_text(encoding="utf-8")))
            or ""
        )
        lines.append(f"  {path:<32} {(doc.splitlines() or [''])[0]}")
    lines += ["", "flags:"]
    own = [
        _WORKDIR,
        _EVALUATE,
        _DEVICES,
        _DISTRIBUTED,
        _COORDINATOR,
        _PROCESSES,
        _PROCESS,
        _TIMEOUT,
    ]
    lines.append(f"  --config{'':<24} {flags.FLAGS['config'].help}")
    lines += [f"  --{f.name:<30} {flags.FLAGS[f.name].help}" for f in own]
    return "\n".join(lines)


def _compilation_cache(jax) -> None:
    """Compiled programs are kept between runs; JAX_COMPILATION_CACHE_DIR names another folder."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = (
            pathlib.Path(
                os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
            )
            / "lnrepro"
            / "xla"
        )
        jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _peer_lost(e: Exception) -> None:
    """Among several processes, an error of JAX's runtime is most often a peer that is gone; ends the process then."""
    import jax

    if isinstance(e, jax.errors.JaxRuntimeError) and jax.process_count() > 1:
        from lnrepro.engine import peers

        peers.abandon(e)


def main(argv: list[str] | None = None) -> int:
    """Run and return the exit code: 0 done, 1 the run failed, 2 a mistake to mend, 128 + n stopped by signal n."""
    argv = sys.argv if argv is None else argv
    if {"--help", "-h", "-help"} & set(argv):
        print(_help())
        return 0
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.path.insert(
        0, os.getcwd()
    )  # `experiments` and `configs` are used from a checkout
    try:
        run(argv)
    except ModuleNotFoundError as e:
        return _missing_extra(e)
    except UserError as e:
        print(f"error: {e}", file=sys.stderr)
        return e.exit_code
    except KeyboardInterrupt:
        return 130
    except Exception as e:
        if not hasattr(e, "exit_code"):
            _peer_lost(e)
            raise
        print(e, file=sys.stderr)
        return e.exit_code
    return 0


def _leave(code: int) -> None:
    """Exit, and after a failure at once: when a save fails, Orbax's threads may wait for one another for many minutes, and
    Python for them."""
    waiting = any(
        not t.daemon for t in threading.enumerate() if t is not threading.main_thread()
    )
    if code and waiting:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    _leave(main())
