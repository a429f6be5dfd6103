# SPDX-License-Identifier: Apache-2.0
"""memory_lines.py COMMAND: lines about memory as people posted them give the table of `lowtide trace log`."""

import json
import pathlib
import subprocess
import sys
import tempfile

import repository

GIB = 1 << 30

# Where a line was posted, the line, and what it says in GiB. Those without a place are made, for what surrounds a line, or it is
# not known where they were posted.
LINES = [
    ("verl-project/verl#2151", "(WorkerDict pid=169054) DEBUG:2025-06-28 18:06:41,828:Before building vllm rollout, memory allocated"
     " (GB): 1.84, memory reserved (GB): 3.68, device memory used/total (GB): 4.11/23.59",
     "Before building vllm rollout", {"allocated": 1.84, "reserved": 3.68, "used": 4.11}),
    ("verl-project/verl#2151", "(WorkerDict pid=169054) DEBUG:2025-06-28 18:06:56,328:After building vllm rollout, memory allocated"
     " (GB): 17.72, memory reserved (GB): 17.94, device memory used/total (GB): 2.43/23.59",
     "After building vllm rollout", {"allocated": 17.72, "reserved": 17.94, "used": 2.43}),
    ("verl-project/verl#2151", "(WorkerDict pid=169054) DEBUG:2025-06-28 18:06:56,335:After building sharding manager, memory"
     " allocated (GB): 17.72, memory reserved (GB): 17.94, device memory used/total (GB): 2.43/23.59",
     "After building sharding manager", {"allocated": 17.72, "reserved": 17.94, "used": 2.43}),
    ("verl-project/verl#138", "(WorkerDict pid=130211) After building vllm rollout, memory allocated (GB): 88.94510173797607,"
     " memory reserved (GB): 96.142578125",
     "After building vllm rollout", {"allocated": 88.94510173797607, "reserved": 96.142578125}),
    ("", "After FSDP, memory allocated (GB): 5.82, memory reserved (GB): 7.36, device memory"
     " used/total (GB): 23.89/23.91",
     "After FSDP", {"allocated": 5.82, "reserved": 7.36, "used": 23.89}),
    ("vllm-project/vllm#11743", "INFO 02-25 19:13:26 worker.py:133] Sleep mode freed 0.00 GiB memory, 63.15 GiB memory is still in use.",
     "Sleep mode", {"used": 63.15}),
    ("sgl-project/sglang#18263", "[2026-07-15 13:14:53] Load weight end. elapsed=19.09 s, type=Qwen3MoeForCausalLM, avail"
     " mem=230.20 GB, mem usage=56.98 GB.",
     "Load weight end", {"allocated": 56.98, "available": 230.20}),
    ("sgl-project/sglang#18263", "[2026-07-15 13:14:54] Memory pool end. avail mem=74.01 GB",
     "Memory pool end", {"available": 74.01}),
    ("sgl-project/sglang#11716", "[2025-10-16 09:06:10 TP5] Load weight begin. avail mem=137.29 GB",
     "Load weight begin", {"available": 137.29}),
    ("", "\x1b[36m(WorkerDict pid=12436, ip=10.0.0.7)\x1b[0m [2025-08-08 07:16:51] After resume, memory allocated (GB): 1.00, memory"
     " reserved (GB): 2.00, device memory used/total (GB): 53.72/79.15 [repeated 7x across cluster]",
     "After resume", {"allocated": 1.0, "reserved": 2.0, "used": 53.72}),
    ("", "2026-09-02T20:18:43.9575040Z (EngineCore pid=418) INFO 09-02 20:06:36 [worker.py:133] Sleep mode freed 60.10 GiB memory,"
     " 3.05 GiB memory is still in use.", "Sleep mode", {"used": 3.05}),
    ("", "(MegatronTrainRayActor pid=29122) [2026-03-05 02:04:51] memory_utils.py:41 - [Rank 7] Memory-Usage after update_weights:"
     " {'gpu': '7', 'total_GB': 178.35, 'free_GB': 95.91, 'used_GB': 82.44, 'allocated_GB': 60.5, 'reserved_GB': 61.0}",
     "after update_weights", {"allocated": 60.5, "reserved": 61.0, "used": 82.44}),
    ("", "step 3/10: 30%\rBefore generate, memory allocated (GB): 0, memory reserved (GB): 0.5, device memory used/total (GB): 1/80",
     "Before generate", {"reserved": 0.5, "used": 1}),
    ("", "Before generate, memory allocated (GB): 0, memory reserved (GB): 0.5, device memory used/total (GB): 1/80\r 30%|###  | 3/10",
     "Before generate", {"reserved": 0.5, "used": 1}),
    ("", "After FSDP, memory allocated (GB): 5.82, memory reserved (GB): 7.36\r\r", "After FSDP", {"allocated": 5.82, "reserved": 7.36}),
    ("", "[36m(WorkerDict pid=12436)[0m After FSDP, memory allocated (GB): 5.82, memory reserved (GB): 7.36[32m [repeated 7x across"
     " cluster][0m", "After FSDP", {"allocated": 5.82, "reserved": 7.36}),
    ("", "2025-08-08 07:16:51,123 - INFO - After FSDP, memory allocated (GB): 5.82, memory reserved (GB): 7.36",
     "After FSDP", {"allocated": 5.82, "reserved": 7.36}),
    ("", "2025-08-08 07:16:51.123 | INFO     | After FSDP, memory allocated (GB): 5.82, memory reserved (GB): 7.36",
     "After FSDP", {"allocated": 5.82, "reserved": 7.36}),
]
# Nothing of these is taken for a number.
STRANGE = [
    "memory allocated (GB): 1.00",
    "x, memory allocated (GB): nan, memory reserved (GB): 1.00",
    "x, memory allocated (GB): 1e999, memory reserved (GB): 1.00",
    "x, memory allocated (GB): -1, memory reserved (GB): 1.00",
    "x, memory allocated (GB): 1, memory reserved (GB): 1, device memory used/total (GB): 4",
    "x, memory allocated (GB): 1,234.50, memory reserved (GB): 2,000.00",
    "(pid= Sleep mode freed",
    "Sleep mode freed 1 GiB",
    "\x1b[",
    "DEBUG:2",
    "[2",
    "x" * 100_000 + ", memory allocated (GB): 1, memory reserved (GB): 1",
]


def table_of(command, text):
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "train.log"
        log.write_text(text, encoding="utf-8", newline="")
        return subprocess.run([command, "trace", "log", "--json", log], capture_output=True, text=True, check=False)


def wrong(command, line, label, expected):
    result = table_of(command, f"something before\n{line}\nsomething after\n")
    if result.returncode != 0:
        return result.stderr
    (table,) = json.loads(result.stdout)["tables"]
    (row,) = table["phases"]
    found = {each["name"]: each["bytes"] for each in row["peaks"]}
    if row["used"]:
        found["used"] = row["used"]
    meant = {name: round(number * GIB) for name, number in expected.items()}
    near = found.keys() == meant.keys() and all(abs(found[name] - meant[name]) <= 1 for name in meant)
    return "" if row["phase"] == label and near else f"{row['phase']} {found}, but it says {label} {meant}"


def main():
    command = sys.argv[1]
    complaints = [f"{source or 'made'}: {said}: {line}" for source, line, label, expected in LINES
                  for said in [wrong(command, line, label, expected)] if said]
    for line in STRANGE:
        result = table_of(command, line + "\n")
        if result.returncode != 2 or "no line about memory" not in result.stderr:
            complaints.append(f"taken for a memory line: {line[:100]!r}: {result.stdout}{result.stderr}")
    return repository.report(complaints)


sys.exit(main())
