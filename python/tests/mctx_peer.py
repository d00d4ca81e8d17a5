"""Fresh random tables, searched by the real mctx and by azserve."""

import numpy as np

import azserve


def random_table(rng, states=16, actions=4, two_players=True):
    to_play = rng.integers(2, size=states) if two_players else np.zeros(states, int)
    nxt = rng.integers(states, size=(states, actions))
    discount = np.where(to_play[nxt] != to_play[:, None], -1.0, 0.97).astype(np.float32)
    return {
        "next_state": nxt,
        "reward": rng.normal(size=(states, actions)).astype(np.float32),
        "discount": discount,
        "prior_logits": rng.normal(size=(states, actions)).astype(np.float32),
        "value": rng.normal(size=states).astype(np.float32),
        "to_play": to_play,
    }


def mctx_search(table, roots, policy, sims, invalid):
    import jax
    import jax.numpy as jnp
    import mctx

    t = {k: jnp.asarray(v) for k, v in table.items()}

    def recurrent(params, key, action, state):
        nxt = t["next_state"][state, action]
        return (
            mctx.RecurrentFnOutput(
                reward=t["reward"][state, action],
                discount=t["discount"][state, action],
                prior_logits=t["prior_logits"][nxt],
                value=t["value"][nxt],
            ),
            nxt,
        )

    root = mctx.RootFnOutput(
        prior_logits=t["prior_logits"][roots], value=t["value"][roots], embedding=jnp.asarray(roots)
    )
    common = dict(
        params=(),
        rng_key=jax.random.PRNGKey(0),
        root=root,
        recurrent_fn=recurrent,
        num_simulations=sims,
        invalid_actions=jnp.asarray(invalid),
    )
    if policy == "gumbel":
        out = mctx.gumbel_muzero_policy(**common, gumbel_scale=0.0)
    else:
        out = mctx.muzero_policy(**common, dirichlet_fraction=0.0, temperature=0.0)
    return (
        np.asarray(out.search_tree.summary().visit_counts),
        np.asarray(out.action_weights),
        np.asarray(out.search_tree.summary().value),
    )


def compare(make, tables):
    """Compare both policies on random tables; rows with a near-tie may differ, and are few."""
    rng = np.random.default_rng(1)
    roots = np.arange(8)
    rows = wrong = 0
    for i in range(tables):
        table = random_table(rng, two_players=i % 2 == 0)
        invalid = rng.random((8, 4)) < 0.2
        invalid[:, 0] = False
        pool = make("Table-v0", num_envs=8, table={**table, "root": roots})
        pool.reset()
        ids = pool.snapshot()
        for policy in ("gumbel", "muzero"):
            visits, weights, value = mctx_search(table, roots, policy, 32, invalid)
            r = azserve.search(
                pool,
                ids,
                "table",
                num_simulations=32,
                policy=policy,
                invalid_actions=invalid,
                gumbel_scale=0,
                dirichlet_fraction=0,
                temperature=0,
                seed=0,
            )
            same = (visits == r.visits).all(1)
            rows += 8
            wrong += int((~same).sum())
            assert np.allclose(weights[same], r.action_weights[same], atol=1e-5)
            assert np.allclose(value[same], r.value[same], atol=1e-5)
    assert wrong <= rows * 0.005, f"{wrong} of {rows} rows differ"
