# SPDX-License-Identifier: Apache-2.0
"""The errors of the C library as exceptions. Each carries the library's own message, with its numbers."""


class Error(RuntimeError):
    """A call that failed. Unless its class says otherwise nothing has changed."""


class InvalidError(Error):
    """An argument, or a call that can never be right."""


class ConfigError(Error):
    """An unknown key or a bad value."""


class DeviceMemoryError(Error):
    """The device has not enough free memory now. The same call works once there is room."""


class HostBudgetError(Error):
    """The host has not enough memory for the backup now."""


class RefusedError(Error):
    """A rule, a stream capture, a sharer or a full disk stands in the way."""


class MovedError(Error):
    """An address could not be had back."""


class DriverError(Error):
    """A driver or disk call failed. No byte is lost, and repeating the call goes on."""


class UnsupportedError(Error):
    """This device, driver or build cannot do it."""


class CorruptError(Error):
    """A backup does not hold what was written to it; it was not loaded."""


class BusyError(Error):
    """Another operation is under way."""


# By lowtide_result.
BY_CODE = {
    -1: InvalidError,
    -2: ConfigError,
    -3: DeviceMemoryError,
    -4: HostBudgetError,
    -5: RefusedError,
    -6: MovedError,
    -7: DriverError,
    -8: UnsupportedError,
    -9: CorruptError,
    -10: BusyError,
}
