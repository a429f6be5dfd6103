# SPDX-License-Identifier: Apache-2.0
"""The phase table of a row: what was in use on the device, and what each role's tags had where, in each variant."""
import time

from other_process import Device, Driver, Nvml

GIB = 1 << 30


class Meter:
    """Memory of the device, by NVML and without a context; where there is no NVML, by the driver."""

    def __init__(self):
        try:
            self.source_ = Nvml(Device().uuid())
        except OSError:
            self.source_ = Driver()
        self.free_at_first_ = self.free()

    def free(self):
        return self.source_.free()

    def used(self):
        """Since the row has its turn: contexts, libraries' own memory and all."""
        return self.free_at_first_ - self.free()


class Phase:
    def __init__(self):
        self.peak = 0
        self.seconds = 0.0
        self.held = {}  # at its end: {"engine.weights": (on the device, on the host, dropped)}


class Track:
    """A variant of a row: the steps that its processes were told, by phase."""

    def __init__(self, name, pair, meter):
        self.name = name
        self.pair = pair
        self.meter = meter
        self.phases = {}

    def do(self, phase, player, *words):
        """Tells the process, and looks at the device afterwards."""
        start = time.monotonic()
        answer = player.do(*words)
        self.look(phase, time.monotonic() - start)
        return answer

    def look(self, phase, seconds=0.0):
        row = self.phases.setdefault(phase, Phase())
        row.peak = max(row.peak, self.meter.used())
        row.seconds += seconds
        row.held = {f"{player.role}.{tag['tag']}": where(tag) for player in self.pair.players if player.under_lowtide
                    for tag in player.status()["tags"]}

    def peak(self, phase):
        return self.phases[phase].peak


def where(tag):
    dropped = max(tag["bytes_parked"] - tag["bytes_backup"], 0)
    return tag["bytes_resident"], tag["bytes_backup"] if tag["bytes_parked"] else 0, dropped


def table(title, tracks):
    """Markdown, the variants side by side."""
    longest_first = sorted(tracks, key=lambda track: -len(track.phases))
    names = list(dict.fromkeys(phase for track in longest_first for phase in track.phases))
    head = ["phase", *[f"GiB used: {track.name}" for track in tracks], *(["it falls by"] if len(tracks) == 2 else []),
            *[f"s: {track.name}" for track in tracks], *[f"held at its end (GiB): {track.name}" for track in tracks]]
    lines = [head, ["---"] * len(head)]
    for name in names:
        found = [track.phases.get(name) for track in tracks]
        fall = [in_gib(found[0].peak - found[1].peak) if all(found) else "-"] if len(tracks) == 2 else []
        lines.append([name, *[in_gib(each.peak) if each else "-" for each in found], *fall,
                      *[f"{each.seconds:.2f}" if each else "-" for each in found], *[held(each) if each else "-" for each in found]])
    return f"**{title}**\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def held(phase):
    words = []
    for name, amounts in sorted(phase.held.items()):
        parts = [f"{in_gib(size)} {place}" for size, place in zip(amounts, ("device", "host", "dropped")) if size]
        words.append(f"{name} {', '.join(parts) or '0'}")
    return "; ".join(words)


def in_gib(size):
    return f"{size / GIB:.2f}"
