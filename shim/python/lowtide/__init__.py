# SPDX-License-Identifier: Apache-2.0
"""Lowtide: device memory that a process gives back while it does not need it, and takes back at the same addresses."""
import importlib.metadata

from .api import Report, TagInfo, info, on_relocate, pause, phase, process_scope, resume, scope, set, trim
from .errors import (BusyError, ConfigError, CorruptError, DeviceMemoryError, DriverError, Error, HostBudgetError, InvalidError,
                     MovedError, RefusedError, UnsupportedError)
from .launch import env, preload_path
from .paused import read_paused, write_paused
from .regions import cuda_graph, region
from .updates import Update, abort_update, begin_update, commit_update, drop_backup, mark_valid

__all__ = [
    "BusyError", "ConfigError", "CorruptError", "DeviceMemoryError", "DriverError", "Error", "HostBudgetError", "InvalidError",
    "MovedError", "RefusedError", "Report", "TagInfo", "UnsupportedError", "Update", "abort_update", "begin_update",
    "commit_update", "cuda_graph", "drop_backup", "env", "info", "mark_valid", "pause", "phase", "on_relocate", "preload_path",
    "process_scope", "read_paused", "region", "resume", "scope", "set", "trim", "write_paused"
]

try:
    __version__ = importlib.metadata.version("lowtide")
except importlib.metadata.PackageNotFoundError:  # a folder that was put on the path
    __version__ = "unknown"
