"""Exceptions. Their text names the thing, the value, the limit and the remedy, as on the command line."""


class Error(Exception):
    """What all failures of braid are."""


class SetupError(Error, ValueError):
    """Arguments ask for something that is not there, or that does not fit together."""


class TraceError(Error):
    """A trace cannot be read."""


class VolumeError(Error):
    """The simulated volume failed a request."""


class WrongDataError(Error):
    """A read returned something else than the last write: the engine or a device is broken (with ``verify=True``)."""
