"""Computes the sampler's order and the rational clocks with Python's big integers, and makes the golden vectors
from them.

usage: sampler_reference.py write FOLDER     writes vectors.json, vectors.txt (the same for C), passes.txt,
mixture.txt and timebase.txt
       sampler_reference.py check FOLDER     compares the files there with the results of this program

Version 1 never changes: if `check` fails after a change of the sampler, that change needs a new version."""

import json
import math
import os
import sys
from bisect import bisect_right

M64 = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
ROUNDS = 8
GLOBAL, BLOCKED, SEQUENTIAL = 0, 1, 2
DROP, WRAP, SHORT = 0, 1, 2


def scramble(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
    return x ^ (x >> 31)


def mix(words):
    mixed = len(words)
    for word in words:
        mixed = scramble(((mixed + GOLDEN) & M64) ^ word)
    return scramble((mixed + GOLDEN) & M64)


def permute(key, n, position):
    a = math.isqrt(n - 1) + 1
    b = -(-n // a)
    assert a * b >= n and a * b - n < a
    cell = position
    while True:
        row, column = divmod(cell, b)
        for r in range(1, ROUNDS + 1):
            round_key = scramble((key + r * GOLDEN) & M64)
            if r % 2:
                row = (row + (scramble((round_key + column) & M64) * a >> 64)) % a
            else:
                column = (column + (scramble((round_key + row) & M64) * b >> 64)) % b
        cell = row * b + column
        if cell < n:
            return cell


class Sampler:
    def __init__(self, options):
        self.__dict__.update(options)
        self.first = [0]
        for segment in self.segments:
            self.first.append(self.first[-1] + segment["window_count"])
        self.n = self.first.pop()

    def key(self, epoch, purpose, number=0):
        return mix([1, self.fingerprint, self.seed, epoch, purpose, number])

    def epoch_length(self):
        whole, over = divmod(self.n, self.global_batch)
        return [whole * self.global_batch, (whole + bool(over)) * self.global_batch, self.n][self.tail]

    def dropped(self):
        return self.n % self.global_batch if self.tail == DROP else 0

    def batches(self, begin):
        left = max(0, self.n - begin)
        return left // self.global_batch if self.tail == DROP else -(-left // self.global_batch)

    def blocked(self, epoch, position):
        size = self.block_windows * self.block_neighbours
        group, inside = divmod(position, size)
        inside = permute(self.key(epoch, 4, group), min(size, self.n - group * size), inside)
        block, offset = divmod(inside, self.block_windows)
        block += group * self.block_neighbours
        full = self.n // self.block_windows
        if block < full:
            block = permute(self.key(epoch, 3), full, block)
        return (block * self.block_windows + offset + self.key(epoch, 2) % self.n) % self.n

    def at(self, epoch, position):
        within = position % self.n
        window = within
        if self.order == GLOBAL:
            window = permute(self.key(epoch, 1), self.n, within)
        elif self.order == BLOCKED:
            window = self.blocked(epoch, within)
        index = bisect_right(self.first, window) - 1
        segment = self.segments[index]
        return {"epoch": epoch, "position": position, "window_id": window, "dataset_index": segment["dataset_index"],
                "episode_index": segment["episode_index"],
                "anchor": segment["first_anchor"] + window - self.first[index], "wrapped": int(position >= self.n)}


class Passes(Sampler):
    """A sampler whose epochs have a declared length, or whose passes draw one window of each episode."""

    def __init__(self, options):
        super().__init__(options)
        self.numbers, self.episodes = self.n, []
        for i, segment in enumerate(self.segments):
            place = (segment["dataset_index"], segment["episode_index"])
            if not self.episodes or self.episodes[-1][0] != place:
                self.episodes.append((place, self.first[i]))
        self.count = len(self.episodes) if self.one_per_episode else self.numbers
        self.n = self.epoch_windows or self.count

    def draw(self, turn, place):
        e = permute(self.key(turn, 1), self.count, place) if self.order == GLOBAL else place
        if not self.one_per_episode:
            return e
        begin = self.episodes[e][1]
        end = self.episodes[e + 1][1] if e + 1 < self.count else self.numbers
        return begin + (self.key(turn, 7, e) * (end - begin) >> 64)

    def at(self, epoch, position):
        within = position % self.n
        turn, place = divmod((epoch * self.epoch_windows + within) & M64, self.count) if self.epoch_windows else (epoch, within)
        window = self.draw(turn, place)
        index = bisect_right(self.first, window) - 1
        segment = self.segments[index]
        return {"epoch": epoch, "position": position, "window_id": window, "dataset_index": segment["dataset_index"],
                "episode_index": segment["episode_index"],
                "anchor": segment["first_anchor"] + window - self.first[index], "wrapped": int(position >= self.n)}


class Mixture:
    """The order of mixture.h. Each dataset's own order is its sampler's."""

    def __init__(self, options):
        self.__dict__.update(options)
        for d, part in enumerate(self.parts):
            part["seed"] = mix([1, self.seed, 6, d])
        self.samplers = [Sampler(part) for part in self.parts]
        counts = [sampler.n for sampler in self.samplers]
        self.by_size = not self.weights
        self.weights = self.weights or [n // math.gcd(*counts) for n in counts]
        self.c = sum(self.weights)
        self.length = self.epoch_windows or sum(counts)
        self.first = [sum(counts[:d]) for d in range(len(counts))]

    def epoch_length(self):
        whole, over = divmod(self.length, self.global_batch)
        return [whole * self.global_batch, (whole + bool(over)) * self.global_batch, self.length][self.tail]

    def dropped(self):
        return self.length % self.global_batch if self.tail == DROP else 0

    def at(self, epoch, position):
        q, within = divmod((epoch * self.length + position % self.length) & M64, self.c)
        slot = permute(mix([1, self.fingerprint, self.seed, 5, q]), self.c, within)
        d = 0
        while slot >= sum(self.weights[: d + 1]):
            d += 1
        turn, inside = divmod(q * self.weights[d] + slot - sum(self.weights[:d]), self.samplers[d].n)
        window = self.samplers[d].at(turn, inside)
        return {**window, "epoch": epoch, "position": position, "window_id": self.first[d] + window["window_id"],
                "dataset_index": d, "wrapped": int(position >= self.length)}


def segments_of(counts):
    return [{"dataset_index": i % 3, "episode_index": i * 7 + 1, "first_anchor": i - 2, "window_count": count}
            for i, count in enumerate(counts)]


def sampler_cases():
    shapes = [[1], [2], [3], [1, 1, 5], [97], [100, 1, 250, 33, 616], [10**9 + 7, 5 * 10**9, 3, 4 * 10**9],
              [2**62 - 12345, 2**62 - 12345]]
    for counts in shapes:
        n = sum(counts)
        for order in (GLOBAL, BLOCKED, SEQUENTIAL):
            for tail, batch in ((DROP, 1), (DROP, min(n, 7)), (WRAP, 32), (SHORT, 16)):
                options = {"seed": 42 + order, "fingerprint": 0xFEDCBA9876543210, "order": order, "block_windows": 10,
                           "block_neighbours": 4, "tail": tail, "global_batch": batch, "segments": segments_of(counts)}
                sampler = Sampler(options)
                length = sampler.epoch_length()
                positions = sorted({p for p in (0, 1, 2, 39, 40, 41, n // 2, n - 1, n, length - 1, 10**9)
                                    if 0 <= p < length})
                yield {"options": options, "window_count": n, "epoch_length": length, "dropped": sampler.dropped(),
                       "batches": [[p, sampler.batches(p)] for p in positions + [length]],
                       "at": [sampler.at(epoch, p) for epoch in (0, 1, M64) for p in positions]}


def pass_cases():
    """The episodes of the segments: each alone, or two segments after each other in one episode."""
    for counts in [[1], [3, 2], [97, 1, 1, 40, 5, 6], [10**9 + 7, 5 * 10**9, 3, 4 * 10**9], [2**62 - 12345, 2**62 - 12345]]:
        segments = segments_of(counts)
        for i, segment in enumerate(segments):
            segment["episode_index"], segment["dataset_index"] = (i + 1) // 2, 0
        for order in (GLOBAL, SEQUENTIAL):
            for one, length, tail, batch in ((1, 0, DROP, 1), (1, 0, WRAP, 8), (1, 10, SHORT, 4), (0, 10, DROP, 3), (0, 10**12, WRAP, 32)):
                options = {"seed": 9 + order, "fingerprint": 0xFEDCBA9876543210, "order": order, "block_windows": 1,
                           "block_neighbours": 1, "tail": tail, "global_batch": batch, "segments": segments,
                           "epoch_windows": length, "one_per_episode": one}
                sampler = Passes(options)
                end = sampler.epoch_length()
                positions = sorted({p for p in (0, 1, 2, 3, 4, 9, 10, 11, end // 2, end - 1) if 0 <= p < end})
                yield {"options": options, "window_count": sampler.n, "epoch_length": end, "dropped": sampler.dropped(),
                       "batches": [[p, sampler.batches(p)] for p in positions + [end]],
                       "at": [sampler.at(epoch, p) for epoch in (0, 1, 5, M64) for p in positions]}


def mixture_cases():
    shapes = [([[5]], [1]), ([[97], [3, 8]], [7, 3]), ([[10], [1], [1000, 1, 20]], [1, 40, 5]), ([[12], [18], [30]], None),
              ([[10**10], [3 * 10**9 + 1, 7], [250]], [70, 20, 10]), ([[6 * 10**9], [4 * 10**9]], None)]
    for counts, weights in shapes:
        total = sum(map(sum, counts))
        for order in (GLOBAL, BLOCKED, SEQUENTIAL) if weights else (GLOBAL,):
            for length, tail, batch in ((0, DROP, min(total, 7)), (1000, WRAP, 32), (10**18, SHORT, 256)):
                parts = [{"fingerprint": 0xABCDEF0123456789 + d, "order": order, "block_windows": 10, "block_neighbours": 4,
                          "segments": segments_of(c)} for d, c in enumerate(counts)]
                options = {"seed": 7 + order, "fingerprint": 0x0123456789ABCDEF, "epoch_windows": length, "tail": tail,
                           "global_batch": batch, "weights": weights, "parts": parts}
                mixture = Mixture(options)
                end = mixture.epoch_length()
                positions = sorted({p for p in (0, 1, 2, 3, 9, 10, 11, 999, end // 3, end - 1, 10**9, 10**18 - 1) if 0 <= p < end})
                yield mixture, [mixture.at(epoch, p) for epoch in (0, 1, 10**9, M64) for p in positions]


def mixture_text(mixture, windows):
    yield ["mixture", mixture.seed, mixture.fingerprint, mixture.epoch_windows, mixture.tail, mixture.global_batch,
           len(mixture.parts), int(mixture.by_size), *mixture.weights]
    for part in mixture.parts:
        words = ["part", part["seed"], part["fingerprint"], part["order"], part["block_windows"], part["block_neighbours"],
                 len(part["segments"])]
        for s in part["segments"]:
            words += [s["dataset_index"], s["episode_index"], s["first_anchor"], s["window_count"]]
        yield words
    yield ["length", mixture.length, mixture.epoch_length(), mixture.dropped(), mixture.c]
    for at in windows:
        yield ["at", *at.values()]


def permute_cases():
    for n in (1, 2, 3, 4, 5, 6, 7, 97, 1000, 4999, 65536, 10**6 + 3, 2**32 - 1, 2**32, 2**32 + 1, 10**10, 2**53 + 1,
              2**62 + 1, 2**63 - 25, 2**63, M64):
        for key in (0, 1, 0xDEADBEEFCAFEF00D, M64):
            for position in sorted({0, 1 % n, n // 3, n - 1}):
                yield {"key": key, "n": n, "position": position, "result": permute(key, n, position)}


def mix_cases():
    for words in ([], [0], [0, 0], [1, 2], [2, 1], [M64, 0, 5], list(range(8))):
        yield {"words": words, "result": mix(words)}


def sampler_text(case):
    o = case["options"]
    words = ["sampler", o["seed"], o["fingerprint"], o["order"], o["block_windows"], o["block_neighbours"], o["tail"],
             o["global_batch"], len(o["segments"])]
    for s in o["segments"]:
        words += [s["dataset_index"], s["episode_index"], s["first_anchor"], s["window_count"]]
    if "epoch_windows" in o:
        words += [o["epoch_windows"], o["one_per_episode"]]
    yield words
    yield ["length", case["window_count"], case["epoch_length"], case["dropped"]]
    for begin, count in case["batches"]:
        yield ["batches", begin, count]
    for at in case["at"]:
        yield ["at", *at.values()]


def timebase_lines():
    """Writes rate and row with its time, and rate and time with the last row at or before it. Leaves out values
    that do not fit int64."""
    rows = [0, 1, 2, 3, 14, 15, 29, 30, 59, 1000, 10**6 + 1, 10**9, 10**10, 3 * 10**12 + 7]
    for num, den in ((15, 1), (30, 1), (30000, 1001), (60, 1), (500, 1), (1, 1), (1, 3), (2**31 - 1, 1), (2**31 - 1, 2**31 - 2)):
        for row in sorted({sign * r for r in rows for sign in (1, -1)}):
            ns = row * 10**9 * den // num
            if not -(2**63) <= ns < 2**63 - 2:
                continue
            yield ["row_ns", num, den, row, ns]
            for x in (ns - 1, ns, ns + 1):
                yield ["row_at", num, den, x, ((x + 1) * num - 1) // (10**9 * den)]
        for x in (-(2**63), 2**63 - 2, 10**18, -(10**18) - 1):
            row = ((x + 1) * num - 1) // (10**9 * den)
            if -(2**63) <= row < 2**63:
                yield ["row_at", num, den, x, row]


def check_inverse(lines):
    """Checks row_at above, which is itself a formula, against the definition row_ns(i) <= x < row_ns(i + 1)."""
    for word, num, den, x, row in lines:
        if word == "row_at":
            assert row * 10**9 * den // num <= x < (row + 1) * 10**9 * den // num, (num, den, x)


def files():
    content = {"mix": list(mix_cases()), "permute": list(permute_cases()), "sampler": list(sampler_cases())}
    lines = [["mix", len(c["words"]), *c["words"], c["result"]] for c in content["mix"]]
    lines += [["permute", *c.values()] for c in content["permute"]]
    for case in content["sampler"]:
        lines += sampler_text(case)
    passes = [line for case in pass_cases() for line in sampler_text(case)]
    mixtures = [line for mixture, windows in mixture_cases() for line in mixture_text(mixture, windows)]
    timebase = list(timebase_lines())
    check_inverse(timebase)

    def text(rows):
        return "".join(" ".join(str(word) for word in row) + "\n" for row in rows)

    return {"vectors.json": json.dumps(content, indent=None, separators=(",", ":")).replace("},{\"", "},\n{\"") + "\n",
            "vectors.txt": text(lines), "passes.txt": text(passes), "mixture.txt": text(mixtures), "timebase.txt": text(timebase)}


def main():
    action, folder = sys.argv[1:]
    for name, text in files().items():
        path = os.path.join(folder, name)
        if action == "write":
            with open(path, "w", encoding="ascii") as out:
                out.write(text)
        else:
            with open(path, encoding="ascii") as there:
                if there.read() != text:
                    sys.exit(f"{path}: differs from the reference")


if __name__ == "__main__":
    main()
