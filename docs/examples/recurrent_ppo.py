"""PPO with an LN-GRU on a task that needs memory, compiled as one program.

    python docs/examples/recurrent_ppo.py --out curve.csv
    python docs/examples/recurrent_ppo.py --memory none --out memoryless.csv
    python docs/examples/recurrent_ppo.py --norm rms --learning_rate 5e-4

The task is a T-maze: a sign at the entrance says whether to turn left or right at the
junction, ten steps later. Whoever forgets the sign turns the right way half of the
time, so a policy without memory gets a return of at most 0.5, and the largest is 1.

What recurrent PPO must get right, and where it is done here:

- A rollout begins in the middle of an episode. `Rollout.carry` is the carry before its
  first step, and the loss starts from it.
- An episode may end inside of a rollout. `resets` is True at the step that sees the
  first observation of the new episode, and the carry starts anew before that step:

      step        0    1    2    3    4
      observation a0   a1   a2   b0   b1      episode b begins at step 3
      done        no   no   yes  no   no      the action of step 2 ended episode a
      resets      no   no   no   yes  no      done of the step before

- The loss unrolls the stored rollout and must see what the policy saw when it acted.
  Before the first gradient step, the ratio of the new and the old probability of every
  action is therefore 1. `replay_error` is its largest deviation, and `main` checks it.

Sources: Schulman et al. (2017) for PPO, Schulman et al. (2016) for the advantages,
Bakker (2001) for the T-maze.

Shape letters: N environments, T steps of a rollout, D observations, A actions.
"""

import argparse
import dataclasses
import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

from lnrepro.linen import RNN, GRUCell

CORRIDOR = 10
# An episode that takes longer ends without a reward.
LONGEST = 3 * CORRIDOR
FORWARD, LEFT, RIGHT = range(3)
ACTIONS, OBSERVATIONS = 3, 3
# The largest error of `replay_error` that rounding explains.
REPLAY_TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes and rates.

    Attributes:
      memory: whether the policy has a GRU, or a dense layer in its place.
      norm: norm of the GRU.
      features: units of the hidden layers.
      environments: N, environments that run side by side.
      steps: T, steps of a rollout.
      updates: number of rollouts.
      epochs: passes over each rollout.
      minibatches: parts of a pass, each with a share of the environments.
      learning_rate: the first one; it falls to zero linearly.
      discount: of later rewards.
      trace: lambda of the generalised advantage estimate.
      clip: how far a ratio may leave 1.
      entropy: weight of the entropy.
      value: weight of the value's loss.
    """

    memory: bool = True
    norm: str = "layer"
    features: int = 64
    environments: int = 64
    steps: int = 64
    updates: int = 150
    epochs: int = 4
    minibatches: int = 4
    learning_rate: float = 2e-3
    discount: float = 0.99
    trace: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01
    value: float = 0.5


# The task


class Maze(NamedTuple):
    """State of an environment: the sign (-1 left, 1 right), position and time."""

    sign: jax.Array
    position: jax.Array
    time: jax.Array


def new_maze(key: jax.Array) -> Maze:
    """Return a maze at the entrance, with a random sign."""
    return Maze(jax.random.rademacher(key), jnp.int32(0), jnp.int32(0))


def observe(maze: Maze) -> jax.Array:
    """Return [D = 3]: the sign at the entrance, whether at the junction, and 1."""
    sign = jnp.where(maze.position == 0, maze.sign, 0)
    at_junction = maze.position == CORRIDOR
    return jnp.stack([sign, at_junction, 1]).astype(jnp.float32)


def move(maze: Maze, action: jax.Array, key: jax.Array):
    """Act.

    Returns:
      (maze, reward, done): after the end of an episode the maze is a new one.
    """
    at_junction = maze.position == CORRIDOR
    turns = action != FORWARD
    is_right_way = (action == RIGHT) == (maze.sign == 1)
    # A turn in the corridor, or none at the junction, is a step against the wall.
    hits_wall = turns != at_junction
    reward = jnp.where(at_junction & turns & is_right_way, 1.0, 0.0)
    reward = jnp.where(hits_wall, -0.1, reward)
    done = (at_junction & turns) | (maze.time + 1 >= LONGEST)
    position = maze.position + jnp.where(hits_wall | at_junction, 0, 1)
    moved = Maze(maze.sign, position, maze.time + 1)
    fresh = new_maze(key)
    maze = jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, moved)
    return maze, reward, done


# The policy


class Policy(nn.Module):
    """Logits of the actions and the value of a state, from a sequence of observations.

    Attributes:
      features: units of the hidden layers.
      recurrent: the second layer, with the interface of `lnrepro.linen.RNN`; None takes
        a dense layer in its place.
    """

    features: int
    recurrent: Any

    @nn.compact
    def __call__(self, carry, x: jax.Array, resets: jax.Array):
        """Run over a sequence; acting is a sequence of one step.

        Args:
          carry: the carry before the first step, None without memory.
          x: [N, T, D], observations.
          resets: [N, T], True where x[:, t] is the first of an episode.

        Returns:
          (carry after the last step, logits [N, T, A], values [N, T]).
        """
        x = nn.relu(nn.Dense(self.features, name="dense")(x))
        if self.recurrent is None:
            x = nn.relu(nn.Dense(self.features, name="second")(x))
        else:
            carry, x = self.recurrent(
                x, initial_carry=carry, resets=resets, return_carry=True
            )
        # All actions are almost equally likely at first.
        small = nn.initializers.variance_scaling(1e-4, "fan_in", "normal")
        logits = nn.Dense(ACTIONS, kernel_init=small, name="logits")(x)
        return carry, logits, nn.Dense(1, name="value")(x)[..., 0]

    def first_carry(self, rows: int):
        """Return the carry of N = rows new episodes."""
        if self.recurrent is None:
            return None
        shape = (rows, self.features)
        return self.recurrent.cell.initialize_carry(jax.random.key(0), shape)


def make_policy(settings: Settings) -> Policy:
    """Return the policy of settings."""
    recurrent = None
    if settings.memory:
        recurrent = RNN(GRUCell(settings.features, norm=settings.norm))
    return Policy(settings.features, recurrent)


class Rollout(NamedTuple):
    """What happened in T steps; every array but carry is [N, T, ...]."""

    carry: Any
    observations: jax.Array
    resets: jax.Array
    actions: jax.Array
    log_probabilities: jax.Array
    values: jax.Array
    rewards: jax.Array
    done: jax.Array


class Acting(NamedTuple):
    """The environments between two rollouts; `reset` is [N], done of the last step."""

    mazes: Maze
    carry: Any
    reset: jax.Array


def log_probability(logits: jax.Array, actions: jax.Array) -> jax.Array:
    """Return log p of the actions that were taken."""
    return -optax.softmax_cross_entropy_with_integer_labels(logits, actions)


def act(policy: Policy, params, acting: Acting, steps: int, key: jax.Array):
    """Act for T = steps.

    Returns:
      (acting, rollout, value of the last state [N]).
    """

    def one_step(acting, key):
        action_key, maze_key = jax.random.split(key)
        x = jax.vmap(observe)(acting.mazes)
        carry, logits, value = policy.apply(
            params, acting.carry, x[:, None], acting.reset[:, None]
        )
        logits, value = logits[:, 0], value[:, 0]
        action = jax.random.categorical(action_key, logits)
        maze_keys = jax.random.split(maze_key, len(action))
        mazes, reward, done = jax.vmap(move)(acting.mazes, action, maze_keys)
        log_p = log_probability(logits, action)
        seen = (x, acting.reset, action, log_p, value, reward, done)
        return Acting(mazes, carry, done), seen

    carry = acting.carry
    acting, seen = jax.lax.scan(one_step, acting, jax.random.split(key, steps))
    seen = jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), seen)
    last = jax.vmap(observe)(acting.mazes)[:, None]
    _, _, value = policy.apply(params, acting.carry, last, acting.reset[:, None])
    return acting, Rollout(carry, *seen), value[:, 0]


def advantages(rollout: Rollout, last_value: jax.Array, settings: Settings):
    """Return the generalised advantage estimates [N, T]."""

    def backwards(advantage, step):
        reward, value, next_value, done = step
        continues = settings.discount * (1.0 - done)
        error = reward + continues * next_value - value
        advantage = error + continues * settings.trace * advantage
        return advantage, advantage

    # Each row by itself.
    @jax.vmap
    def of_row(steps):
        return jax.lax.scan(backwards, 0.0, steps, reverse=True)[1]

    next_values = jnp.concatenate([rollout.values[:, 1:], last_value[:, None]], 1)
    return of_row((rollout.rewards, rollout.values, next_values, rollout.done))


def replay(params, policy: Policy, rollout: Rollout):
    """See a rollout again.

    Returns:
      (ratio of the new and the old probability of each action, logits, values).
    """
    _, logits, values = policy.apply(
        params, rollout.carry, rollout.observations, rollout.resets
    )
    new = log_probability(logits, rollout.actions)
    return jnp.exp(new - rollout.log_probabilities), logits, values


def loss(params, policy: Policy, batch, settings: Settings) -> jax.Array:
    """Return PPO's loss of some environments.

    Args:
      params: the parameters.
      policy: the policy.
      batch: (rollout, advantages, returns).
      settings: the weights.
    """
    rollout, advantage, returns = batch
    ratio, logits, values = replay(params, policy, rollout)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
    gain = jnp.minimum(ratio * advantage, clipped * advantage).mean()
    entropy = -(jax.nn.softmax(logits) * jax.nn.log_softmax(logits)).sum(-1).mean()
    value_loss = 0.5 * jnp.square(values - returns).mean()
    return settings.value * value_loss - gain - settings.entropy * entropy


def replay_error(params, policy: Policy, rollout: Rollout) -> jax.Array:
    """Return the largest |ratio - 1| of unchanged parameters; rounding alone."""
    ratio, _, _ = replay(params, policy, rollout)
    return jnp.abs(ratio - 1).max()


class Progress(NamedTuple):
    """Of each update: the mean return of the episodes that ended, and `replay_error`.

    The return is counted at the end of an episode: 1 for the right way, and -0.1 for
    every step against a wall is left out.
    """

    score: jax.Array
    replay_error: jax.Array


class State(NamedTuple):
    """What changes in a training: parameters with those of Adam, and the mazes."""

    learned: TrainState
    acting: Acting


def start(
    policy: Policy, settings: Settings, init_key: jax.Array, maze_key: jax.Array
) -> State:
    """Return the state before the first update."""
    rows = settings.environments
    carry = policy.first_carry(rows)
    resets = jnp.ones((rows, 1), bool)
    params = policy.init(init_key, carry, jnp.zeros((rows, 1, OBSERVATIONS)), resets)
    gradient_steps = settings.updates * settings.epochs * settings.minibatches
    rate = optax.linear_schedule(settings.learning_rate, 0.0, gradient_steps)
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(rate))
    learned = TrainState.create(apply_fn=policy.apply, params=params, tx=optimizer)
    mazes = jax.vmap(new_maze)(jax.random.split(maze_key, rows))
    return State(learned, Acting(mazes, carry, jnp.ones(rows, bool)))


def update(
    policy: Policy, settings: Settings, state: State, key: jax.Array
) -> tuple[State, Progress]:
    """Act for a rollout and learn from it."""
    act_key, epochs_key = jax.random.split(key)
    learned, params = state.learned, state.learned.params
    acting, rollout, last_value = act(
        policy, params, state.acting, settings.steps, act_key
    )
    error = replay_error(params, policy, rollout)
    advantage = advantages(rollout, last_value, settings)
    batch = (rollout, advantage, advantage + rollout.values)

    def gradient_step(learned, batch):
        gradients = jax.grad(loss)(learned.params, policy, batch, settings)
        return learned.apply_gradients(grads=gradients), None

    def epoch(learned, key):
        # Whole rows are drawn, because the policy reads each from its first step on.
        order = jax.random.permutation(key, settings.environments)
        parts = jax.tree.map(
            lambda a: a[order].reshape(settings.minibatches, -1, *a.shape[1:]), batch
        )
        return jax.lax.scan(gradient_step, learned, parts)

    epoch_keys = jax.random.split(epochs_key, settings.epochs)
    learned, _ = jax.lax.scan(epoch, learned, epoch_keys)
    # The only positive reward is that of the right way, at the end of an episode.
    right = jnp.maximum(rollout.rewards, 0).sum()
    score = right / jnp.maximum(rollout.done.sum(), 1)
    return State(learned, acting), Progress(score, error)


@functools.partial(jax.jit, static_argnums=0)
def train(settings: Settings, key: jax.Array) -> Progress:
    """Train a policy.

    Args:
      settings: sizes and rates.
      key: random key.

    Returns:
      The progress, arrays [updates].
    """
    policy = make_policy(settings)
    init_key, maze_key, key = jax.random.split(key, 3)
    state = start(policy, settings, init_key, maze_key)
    keys = jax.random.split(key, settings.updates)
    return jax.lax.scan(functools.partial(update, policy, settings), state, keys)[1]


def main() -> None:
    """Train, print the progress, check the replay, and write the curve."""
    parser = argparse.ArgumentParser(description="Recurrent PPO on a T-maze.")
    parser.add_argument("--memory", choices=("gru", "none"), default="gru")
    parser.add_argument("--norm", choices=("none", "layer", "rms"), default="layer")
    parser.add_argument("--learning_rate", type=float, default=Settings.learning_rate)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="CSV file for the learning curve")
    args = parser.parse_args()
    settings = Settings(
        memory=args.memory == "gru",
        norm=args.norm,
        learning_rate=args.learning_rate,
    )
    progress = train(settings, jax.random.key(args.seed))
    for number in range(10, settings.updates + 1, 10):
        score = progress.score[number - 1]
        print(f"update {number}/{settings.updates}  return {score:.3f}")
    worst = float(progress.replay_error.max())
    assert worst <= REPLAY_TOLERANCE, f"the loss saw another policy: {worst}"
    print(f"return of the last update {progress.score[-1]:.3f}; replay {worst:.1e}")
    if args.out:
        per_update = settings.environments * settings.steps
        steps = per_update * np.arange(1, settings.updates + 1)
        table = np.stack([steps, progress.score], axis=1)
        head = "environment steps,return"
        np.savetxt(args.out, table, fmt="%d,%.4f", header=head, comments="")


if __name__ == "__main__":
    main()
