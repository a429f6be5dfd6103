# SPDX-License-Identifier: Apache-2.0
"""A CuPy program that knows nothing of Lowtide: some GiB of random words, and a loop of matrix products, a Fourier
transform and a sum on a stream of its own."""

import cupy

import rundir

SYNCHRONISE_EVERY = 8
CHECKED_PER_STEP = 2
WIDTH = 1024


class Digester:
    """Two wrapping sums with odd random weights: no change of a single word goes unseen; the order does not matter."""

    def __init__(self, words, random):
        self.shift_ = 4099
        self.weights_ = random.integers(0, 1 << 62, words + self.shift_, dtype=cupy.int64).astype(cupy.uint64)
        self.weights_ |= cupy.uint64(1)

    def __call__(self, words):
        first = (words * self.weights_[: words.size]).sum()
        second = (words * self.weights_[self.shift_ : self.shift_ + words.size]).sum()
        return cupy.stack((first, second))


def hexadecimal(digest):
    return "".join(f"{int(value):016x}" for value in digest.get())


class Loop:
    def __init__(self, options):
        random = cupy.random.default_rng(7)
        self.words_ = int(options.gib * (1 << 30) / 8 / options.blocks)
        self.ballast = [
            random.integers(0, 1 << 62, self.words_, dtype=cupy.int64).view(cupy.uint64) for _ in range(options.blocks)
        ]
        self.digester_ = Digester(self.words_, random)
        self.expected_ = [self.digester_(block) for block in self.ballast]
        self.mismatches = cupy.zeros((), dtype=cupy.int64)
        self.weight_ = random.standard_normal((WIDTH, WIDTH), dtype=cupy.float32) / cupy.float32(WIDTH**0.5)
        self.state = random.standard_normal((512, WIDTH), dtype=cupy.float32)

    def step(self, number):
        product = cupy.tanh(self.state @ self.weight_ * cupy.float32(3))
        self.state = cupy.fft.irfft(cupy.fft.rfft(product, axis=1), n=WIDTH, axis=1).astype(cupy.float32)
        for offset in range(CHECKED_PER_STEP):
            index = (number * CHECKED_PER_STEP + offset) % len(self.ballast)
            self.mismatches += (self.digester_(self.ballast[index]) != self.expected_[index]).sum()

    def digests(self):
        digests = {f"ballast_{index}": hexadecimal(self.digester_(block)) for index, block in enumerate(self.ballast)}
        digests["state"] = hexadecimal(self.digester_(self.state.ravel().view(cupy.uint64)))
        return digests

    def bytes(self):
        return self.words_ * 8 * len(self.ballast)


def main():
    options = rundir.arguments(gib=4, blocks=40)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        loop = Loop(options)
        stream.synchronize()
        folder = rundir.RunFolder(options)
        for step in folder.loop():
            loop.step(step)
            if step % SYNCHRONISE_EVERY == 0:
                stream.synchronize()
        stream.synchronize()
        folder.finish(
            loop.digests(),
            {"mismatches_seen_in_the_loop": int(loop.mismatches), "sum": float(loop.state.sum())},
            {
                "ballast_bytes": loop.bytes(),
                "ballast_blocks": len(loop.ballast),
                "pool_bytes": cupy.get_default_memory_pool().total_bytes(),
            },
        )


if __name__ == "__main__":
    main()
