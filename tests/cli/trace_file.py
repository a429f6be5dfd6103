# SPDX-License-Identifier: Apache-2.0
"""Writes trace files byte by byte, as docs/trace-format.md says, with times and faults that no recorder would give."""
import struct

CHUNK = 64 << 10
EVENT = struct.Struct("<BBbBIQQQQII")
EVENTS_PER_CHUNK = (CHUNK - 32) // EVENT.size
MONOTONIC = 1_000_000_000_000
REALTIME = 1_700_000_000_000_000_000
NO_DEVICE = -1

OPS = {"thread": 1, "alloc": 2, "free": 3, "map": 4, "unmap": 5, "out_of_memory": 6, "pause_begin": 16, "pause_end": 17,
       "resume_begin": 18, "resume_end": 19, "copy": 24, "wait": 25, "refusal": 26, "phase": 32, "sample_device": 48,
       "sample_tag": 49, "sample_unmanaged": 50, "sample_others": 51, "shutdown": 60}
RUNTIME, DRIVER, HANDLE, HOST_PINNED = 1, 2, 5, 8
OPEN, DICTIONARY = 1, 3
STRING, FRAME, MODULE, DEVICE = 1, 2, 3, 4


class TraceFile:
    """One process. Times are in seconds since it began to record; sizes in bytes."""

    def __init__(self, pid=4711, host="node1", command="python train.py", start=0.0):
        self.pid, self.host, self.command, self.start = pid, host, command, start
        self.entries, self.strings, self.frames, self.events = [], {}, 0, []

    def text(self, text):
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            self._entry(STRING, self.strings[text], text.encode("utf-8", "surrogateescape"))
        return self.strings[text]

    def stack(self, *frames):
        """Frames of Python, (function, file, line), the innermost last."""
        parent = 0
        for function, file, line in frames:
            payload = struct.pack("<IIQII", parent, line, 0, self.text(function), self.text(file))
            self.frames += 1
            self._entry(FRAME, self.frames, payload)
            parent = self.frames
        return parent

    def device(self, ordinal, total, name="NVIDIA H200", uuid="GPU-1"):
        self._entry(DEVICE, 0, struct.pack("<QiIII", total, ordinal, self.text(uuid), self.text(name), 0))

    def event(self, op, time, name=0, device=0, kind=0, address=0, size=0, value=0, managed=False, stack=0):
        """`name` is a text, in which "\\udcff" is the byte 0xff alone, or an id."""
        name = self.text(name) if isinstance(name, str) else name
        nanoseconds = MONOTONIC + round((self.start + time) * 1e9)
        self.events.append(EVENT.pack(OPS[op], kind % 256, device, int(managed), 1, nanoseconds, address, size, value, name,
                                      stack))

    def alloc(self, time, address, size, tag=None, **more):
        self.event("alloc", time, name=tag or 0, address=address, size=size, managed=tag is not None, kind=more.pop("kind", RUNTIME),
                   **more)

    def sample(self, time, used, total, tags=(), unmanaged=(), others=0, device=0):
        """`tags`: (name, resident, parked, backup); `unmanaged`: (kind, bytes)."""
        self.event("sample_device", time, device=device, size=used, value=total)
        for name, resident, parked, backup in tags:
            self.event("sample_tag", time, name=name, device=device, size=resident, value=parked, address=backup)
        for kind, size in unmanaged:
            self.event("sample_unmanaged", time, device=device, kind=kind, size=size)
        self.event("sample_others", time, device=device, size=others, value=1 if others else 0)

    def _entry(self, kind, number, payload):
        padding = b"\0" * (-len(payload) % 8)
        self.entries.append(struct.pack("<II", len(payload) * 256 + kind, number) + payload + padding)

    def _header(self, chunks):
        text = lambda value, size: value.encode()[:size - 1].ljust(size, b"\0")
        fixed = struct.pack("<8sIIIIIIQqQII", b".LTTRACE", 0x01020304, 1, 4096, CHUNK, EVENT.size, 4096, 77, REALTIME,
                            MONOTONIC, self.pid, 0)
        texts = text("boot", 40) + text(self.host, 64) + text("0.1.0", 64) + text("build", 64) + text(self.command, 2048)
        rest = struct.pack("<QIIQQQ", chunks, chunks, 0, 0, 0, 0)
        return (fixed + texts + rest).ljust(4096, b"\0")

    def _dictionary_chunks(self):
        chunk = b""
        for entry in self.entries:
            if 32 + len(chunk) + len(entry) > CHUNK:
                yield chunk
                chunk = b""
            chunk += entry
        if chunk:
            yield chunk

    def write(self, path):
        state = lambda which: struct.pack("<QQQQ", 1 << 32 | which, 0, 0, 0)
        chunks = [(state(DICTIONARY) + chunk).ljust(CHUNK, b"\0") for chunk in self._dictionary_chunks()]
        thread = EVENT.pack(OPS["thread"], 0, NO_DEVICE, 0, 1, MONOTONIC, 0, 0, self.pid, 0, 0)
        step = EVENTS_PER_CHUNK - 1
        for first in range(0, len(self.events), step):
            body = thread + b"".join(self.events[first:first + step])
            chunks.append((state(OPEN) + body).ljust(CHUNK, b"\0"))
        with open(path, "wb") as file:
            file.write(self._header(len(chunks)))
            file.writelines(chunks)
        return path
