# SPDX-License-Identifier: Apache-2.0
"""A JAX program that knows nothing of Lowtide: some GiB of random words and a jitted recurrence, with preallocation
off so that XLA's allocator asks the driver as it goes."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# Two runs must choose the same algorithms to give the same bits.
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0")

import jax  # noqa: E402  the settings above are read while it loads
import jax.numpy as jnp  # noqa: E402

import rundir  # noqa: E402

SYNCHRONISE_EVERY = 8
CHECKED_PER_STEP = 2
WIDTH = 1024


@jax.jit
def digest(words):
    """Two sums modulo 2^32 with odd, position-dependent weights: no change of a single word goes unseen."""
    position = jnp.arange(words.size, dtype=jnp.uint32)
    first = (position * jnp.uint32(2654435761) ^ (position >> 15)) | jnp.uint32(1)
    second = (position * jnp.uint32(2246822519) ^ (position >> 13)) | jnp.uint32(1)
    return jnp.stack((jnp.sum(words * first, dtype=jnp.uint32), jnp.sum(words * second, dtype=jnp.uint32)))


@jax.jit
def advance(state, weight, mismatches, words, expected):
    state = jnp.tanh(state @ weight * 3.0) + state.mean()
    return state, mismatches + jnp.sum(digest(words) != expected)


def hexadecimal(array):
    return "".join(f"{int(value):08x}" for value in jax.device_get(array))


def main():
    options = rundir.arguments(gib=4, blocks=40)
    words = int(options.gib * (1 << 30) / 4 / options.blocks)
    keys = jax.random.split(jax.random.key(7), options.blocks + 2)
    ballast = [jax.random.bits(key, (words,), jnp.uint32) for key in keys[2:]]
    expected = [digest(block) for block in ballast]
    weight = jax.random.normal(keys[0], (WIDTH, WIDTH)) / WIDTH**0.5
    state = jax.random.normal(keys[1], (512, WIDTH))
    mismatches = jnp.int32(0)
    advance(state, weight, mismatches, ballast[0], expected[0])[0].block_until_ready()

    folder = rundir.RunFolder(options)
    for step in folder.loop():
        for offset in range(CHECKED_PER_STEP):
            index = (step * CHECKED_PER_STEP + offset) % len(ballast)
            state, mismatches = advance(state, weight, mismatches, ballast[index], expected[index])
        if step % SYNCHRONISE_EVERY == 0:
            state.block_until_ready()
    digests = {f"ballast_{index}": hexadecimal(digest(block)) for index, block in enumerate(ballast)}
    digests["state"] = hexadecimal(digest(jax.lax.bitcast_convert_type(state, jnp.uint32).reshape(-1)))
    folder.finish(
        digests,
        {"mismatches_seen_in_the_loop": int(mismatches), "mean": float(state.mean())},
        {"ballast_bytes": words * 4 * len(ballast), "ballast_blocks": len(ballast), "device": str(jax.devices()[0])},
    )


if __name__ == "__main__":
    main()
