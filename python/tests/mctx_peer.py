"""Fresh random tables, searched by the real mctx and by azserve."""

import functools
from collections import Counter

import jax
import jax.numpy as jnp
import mctx
import numpy as np

import azserve

jax.config.update("jax_platforms", "cpu")

ROWS, STATES, ACTIONS, SIMS = 8, 16, 5, 32
AFTERSTATES, OUTCOMES = 12, 3

# What mctx is compiled for, once each: a policy, its Q-transform, and the settings that are no floats.
GROUPS = (
    ("muzero", "by_parent_and_siblings", ()),
    ("muzero", "by_min_max", ()),
    ("gumbel", "completed_by_mix_value", ()),
    (
        "gumbel",
        "completed_by_mix_value",
        (("rescale_values", False), ("use_mixed_value", False), ("max_num_considered_actions", 3)),
    ),
)
STOCHASTIC_GROUPS = (("stochastic", "by_parent_and_siblings", ()), ("stochastic", "by_min_max", ()))

QTRANSFORMS = {
    "by_parent_and_siblings": mctx.qtransform_by_parent_and_siblings,
    "by_min_max": mctx.qtransform_by_min_max,
    "completed_by_mix_value": mctx.qtransform_completed_by_mix_value,
}


# -- models and settings ---------------------------------------------------------------------------


def random_table(rng, two_players):
    shape = (STATES, ACTIONS)
    to_play = rng.integers(2, size=STATES) if two_players else np.zeros(STATES, int)
    nxt = rng.integers(STATES, size=shape)
    discount = np.where(to_play[nxt] != to_play[:, None], -1.0, 0.97)
    discount[rng.random(shape) < 0.05] = 0
    return {
        "next_state": nxt,
        "reward": rng.normal(size=shape).astype(np.float32),
        "discount": discount.astype(np.float32),
        "prior_logits": rng.normal(size=shape).astype(np.float32),
        "value": rng.normal(size=STATES).astype(np.float32),
        "to_play": to_play,
    }


def random_stochastic_table(rng, two_players):
    shape = (AFTERSTATES, OUTCOMES)
    discount = np.full(shape, -1.0 if two_players else 0.97)
    discount[rng.random(shape) < 0.05] = 0
    return {
        "afterstate": rng.integers(AFTERSTATES, size=(STATES, ACTIONS)),
        "chance_logits": rng.normal(size=shape).astype(np.float32),
        "afterstate_value": rng.normal(size=AFTERSTATES).astype(np.float32),
        "next_state": rng.integers(STATES, size=shape),
        "reward": rng.normal(size=shape).astype(np.float32),
        "discount": discount.astype(np.float32),
        "prior_logits": rng.normal(size=(STATES, ACTIONS)).astype(np.float32),
        "value": rng.normal(size=STATES).astype(np.float32),
    }


def random_mask(rng):
    """Return invalid actions on about half of the rows, never all of a row."""
    invalid = (rng.random((ROWS, ACTIONS)) < 0.4) & (rng.random((ROWS, 1)) < 0.5)
    invalid[np.arange(ROWS), rng.integers(ACTIONS, size=ROWS)] = False
    return invalid


def policy_numbers(rng, policy, noise):
    """Draw a policy's settings; without noise the search depends on the table only."""
    if policy == "gumbel":
        return {"gumbel_scale": float(rng.choice([0.5, 1.0])) if noise else 0.0}
    return {
        "pb_c_init": float(rng.choice([0.5, 1.25, 3.0])),
        "pb_c_base": float(rng.choice([50.0, 19652.0])),
        "dirichlet_fraction": 0.25 if noise else 0.0,
        "dirichlet_alpha": float(rng.choice([0.3, 1.0])),
        "temperature": float(rng.choice([0.5, 1.0])) if noise else 0.0,
    }


def qtransform_numbers(rng, name):
    if name == "by_min_max":
        return {"min_value": float(rng.choice([-5.0, -2.0])), "max_value": float(rng.choice([3.0, 6.0]))}
    if name == "completed_by_mix_value":
        return {
            "value_scale": float(rng.choice([0.05, 0.1])),
            "maxvisit_init": float(rng.choice([10.0, 50.0])),
        }
    return {}


# -- mctx ------------------------------------------------------------------------------------------


def recurrent(table, key, action, state):
    nxt = table["next_state"][state, action]
    out = mctx.RecurrentFnOutput(
        reward=table["reward"][state, action],
        discount=table["discount"][state, action],
        prior_logits=table["prior_logits"][nxt],
        value=table["value"][nxt],
    )
    return out, nxt


def decision_recurrent(table, key, action, state):
    after = table["afterstate"][state, action]
    out = mctx.DecisionRecurrentFnOutput(
        chance_logits=table["chance_logits"][after], afterstate_value=table["afterstate_value"][after]
    )
    return out, after


def chance_recurrent(table, key, outcome, after):
    nxt = table["next_state"][after, outcome]
    out = mctx.ChanceRecurrentFnOutput(
        action_logits=table["prior_logits"][nxt],
        value=table["value"][nxt],
        reward=table["reward"][after, outcome],
        discount=table["discount"][after, outcome],
    )
    return out, nxt


POLICIES = {
    "gumbel": functools.partial(mctx.gumbel_muzero_policy, recurrent_fn=recurrent),
    "muzero": functools.partial(mctx.muzero_policy, recurrent_fn=recurrent),
    "stochastic": functools.partial(
        mctx.stochastic_muzero_policy,
        decision_recurrent_fn=decision_recurrent,
        chance_recurrent_fn=chance_recurrent,
    ),
}


def drawn_noise(policy, key, alpha, shape):
    """Return what the policy draws from the key, under azserve's names."""
    if policy == "gumbel":
        return {"root_gumbel": jax.random.gumbel(jax.random.split(key)[1], shape)}
    action, dirichlet, _ = jax.random.split(key, 3)
    return {
        "dirichlet_noise": jax.random.dirichlet(dirichlet, jnp.full(shape[1], alpha), shape[:1]),
        "action_gumbel": jax.random.gumbel(action, shape),
    }


@functools.cache
def compiled(policy, qtransform, fixed, sims):
    """Return a jitted search that compiles once: the table and all floats are its arguments."""
    fixed = dict(fixed)
    own = {k: fixed.pop(k) for k in ("max_num_considered_actions",) if k in fixed}

    @jax.jit
    def run(table, roots, invalid, max_depth, key, numbers, q_numbers):
        logits = table["prior_logits"][roots]
        out = POLICIES[policy](
            params=table,
            rng_key=key,
            root=mctx.RootFnOutput(prior_logits=logits, value=table["value"][roots], embedding=roots),
            num_simulations=sims,
            invalid_actions=invalid,
            max_depth=max_depth,
            qtransform=functools.partial(QTRANSFORMS[qtransform], **fixed, **q_numbers),
            **own,
            **numbers,
        )
        summary = out.search_tree.summary()
        answer = {
            "visits": summary.visit_counts.astype(int),
            "action": out.action,
            "action_weights": out.action_weights,
            "value": summary.value,
            "qvalues": summary.qvalues,
        }
        return answer, drawn_noise(policy, key, numbers.get("dirichlet_alpha"), logits.shape)

    return run


def mctx_search(group, table, roots, invalid, max_depth, seed, numbers, q_numbers, sims=SIMS):
    """Search a table with the real mctx; return its answer and the noise that it drew."""
    run = compiled(*group, sims)
    depth = sims if max_depth is None else max_depth
    out = run(table, roots, invalid, depth, jax.random.PRNGKey(seed), numbers, q_numbers)
    return jax.tree.map(np.asarray, out)


def stochastic_search(table, roots, sims=SIMS, invalid=None, seed=0, **numbers):
    """Search a stochastic table with mctx and its defaults; return visits, weights, value and action."""
    if invalid is None:
        invalid = np.zeros((len(roots), table["prior_logits"].shape[1]), bool)
    numbers = {"dirichlet_alpha": 0.3, **numbers}
    out, _ = mctx_search(STOCHASTIC_GROUPS[0], table, roots, invalid, None, seed, numbers, {}, sims)
    return out["visits"], out["action_weights"], out["value"], out["action"]


# -- the comparison --------------------------------------------------------------------------------


def rows_that_differ(got, want, scale, what):
    """Count the rows with other visits or another action; the numbers of all others must agree."""
    same = (want["visits"] == got.visits).all(1) & (want["action"] == got.action)
    for name, m in (("action_weights", 1), ("value", scale), ("qvalues", scale)):
        close = {"rtol": 1e-5, "atol": 1e-5 if name == "action_weights" else 1e-6 * m}
        np.testing.assert_allclose(
            getattr(got, name)[same], want[name][same], **close, err_msg=f"{name} of {what}"
        )
    return int((~same).sum())


def compare_groups(make, tables, groups, draw_table):
    """Search random tables both ways.

    A row whose choice hangs on two nearly equal scores may differ by rounding: at most 0.5 % of a group.
    """
    rng = np.random.default_rng(1)
    differ = Counter()
    for i in range(tables):
        table = draw_table(rng, two_players=i % 2 == 0)
        scale = max(1, *(abs(table[k]).max() for k in ("value", "afterstate_value") if k in table))
        roots = rng.integers(STATES, size=ROWS)
        invalid = random_mask(rng) if i % 3 else np.zeros((ROWS, ACTIONS), bool)
        max_depth = int(rng.integers(1, 5)) if i % 4 == 3 else None
        pool = make("Table-v0", num_envs=ROWS, table={**table, "root": roots})
        pool.reset()
        ids = pool.snapshot()
        for group in groups:
            policy, qtransform, fixed = group
            numbers = policy_numbers(rng, policy, noise=i % 5 > 1)
            q_numbers = qtransform_numbers(rng, qtransform)
            want, noise = mctx_search(group, table, roots, invalid, max_depth, i, numbers, q_numbers)
            got = azserve.search(
                pool,
                ids,
                "table",
                num_simulations=SIMS,
                policy=policy,
                qtransform=qtransform,
                invalid_actions=invalid if invalid.any() else None,
                max_depth=max_depth,
                seed=0,
                **dict(fixed),
                **numbers,
                **q_numbers,
                **noise,
            )
            what = f"table {i}, {group}, {numbers}, {q_numbers}, max_depth {max_depth}"
            differ[group] += rows_that_differ(got, want, scale, what)
        pool.close()
    for group in groups:
        print(f"{differ[group]} of {tables * ROWS} rows differ: {group}")
    assert all(n <= tables * ROWS * 0.005 for n in differ.values()), differ


def compare(make, tables):
    compare_groups(make, tables, GROUPS, random_table)


def compare_stochastic(make, tables):
    compare_groups(make, tables, STOCHASTIC_GROUPS, random_stochastic_table)
