# SPDX-License-Identifier: Apache-2.0
"""Updates: how the content of a tag becomes valid again after a pause dropped it, and of which version it is."""
from types import TracebackType
from typing import Optional, Type

from . import library
from .errors import InvalidError

_VERSIONS = 2 ** 64


def _word(version: int) -> int:
    if not 0 <= version < _VERSIONS:  # ctypes would take another number without a word
        raise InvalidError(f"{version} is not a version: 0 to {_VERSIONS - 1}")
    return version


class Update:
    """An update that is under way. As a context manager it commits at the end, and aborts if an exception leaves it."""

    def __init__(self, tag: str, version: int) -> None:
        self.tag, self.version = tag, version

    def __enter__(self) -> "Update":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if kind is None:
            commit_update(self.tag, self.version)
        else:
            abort_update(self.tag)


def begin_update(tag: str, version: int) -> Update:
    """The blocks of `tag` are being written, on the device or, while they are parked, by write_paused:

        with lowtide.begin_update("weights", step):
            engine.load_weights(...)

    Until the update is over a pause and a resume of the tag are refused. A call for the version that is being written is
    counted and begins nothing. Raises RefusedError for a tag that is parked without a backup, and where a rule stands in the way.
    """
    library.call("lowtide_begin_update", tag.encode(), _word(version))
    return Update(tag, version)


def commit_update(tag: str, version: int) -> None:
    """All of `tag` was written: it is valid, and of `version`. With `tag.NAME.coverage` what the resume brought back stale and
    nobody wrote is put back as it was before the pause, or the tag stays stale and the RefusedError names it.
    """
    library.call("lowtide_commit_update", tag.encode(), _word(version))


def abort_update(tag: str) -> None:
    """What the update may have written to is stale."""
    library.call("lowtide_abort_update", tag.encode())


def mark_valid(tag: str, version: int) -> None:
    """Stale content is valid and of `version`, on the caller's word: for programs that cannot begin and commit."""
    library.call("lowtide_mark_valid", tag.encode(), _word(version))


def drop_backup(tag: str) -> None:
    """Gives up the backups of what is parked of `tag`, as if the pause had discarded it."""
    library.call("lowtide_drop_backup", tag.encode())
