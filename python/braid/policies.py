"""A policy of your own, in Python: simulations run it beside the built-in policies.

A policy decides where bytes go (``place``) and what moves in the background (``plan``). The engine that serves
volumes carries both out. The policy below keeps the most requested extents on the SSD::

    from collections import Counter
    import braid

    class Hottest(braid.Policy):
        def __init__(self):
            self.counts = Counter()

        def place(self, occasion, view):
            self.counts[occasion.extent] += 1

        def plan(self, view):
            ssd, disk = view.devices[0], view.devices[1]
            wanted = {extent for extent, _ in self.counts.most_common(ssd.slots - 64)}
            for extent in (view.homes == ssd.id).nonzero()[0]:
                if extent not in wanted:
                    yield braid.Move.migrate(extent, disk.id)
            for extent in wanted:
                if view.homes[extent] == disk.id:
                    yield braid.Move.migrate(extent, ssd.id)

    braid.sweep(ssd="1GiB,model=x25-m", hdd="4GB,model=mba3073", workload="zipf", duration="60s",
                policy=["wardrop", "cache", Hottest])

A simulation with a policy in Python runs some 100,000 requests a second, with a built-in policy millions.
Simulations share one interpreter: more threads make policies in Python no faster.
"""

from __future__ import annotations

from typing import Any, Iterable, Optional, Tuple

from ._native import Move, Placement


class Policy:
    """A policy. Derive a class, and give the class (or any callable without arguments that returns an instance)
    as ``policy``.

    Each simulation makes its own instance. An exception or an invalid answer ends all simulations of the call,
    and the call raises the exception. Equal answers to equal questions give equal figures: draw random numbers
    from ``random.Random(seed)``, not from ``random``.

    ``view`` is the volume at one moment: ``now`` (seconds), ``extent_size`` and ``block_size`` (bytes),
    ``extents`` (how many), and ``devices``, each with ``id``, ``is_ssd``, ``slots``, ``free``, ``in_flight`` and
    ``read_latency`` (seconds; None before the first read). In ``plan`` the view also has ``homes``, an array with
    the device of each extent (-1: not written yet), and ``extras``, a dict of the extra copies from block to
    ``(device, dirty)``. Both are None in ``place``.
    """

    period: float = 1.0
    """Seconds between two plans."""

    def place(self, occasion: Any, view: Any) -> Optional[Placement]:
        """Where the bytes of a guest's read or write go. None changes nothing, and a new extent goes to the device
        with most room.

        ``occasion`` has ``kind`` (``"new"``: the first write to an extent; ``"write"``; ``"read-miss"``;
        ``"read-hit"``: a hit in the memory cache), ``extent``, ``start`` and ``length`` (bytes of the volume, within
        the extent), ``first_block``, ``blocks``, ``home`` (a device, or None) and ``extra`` (the device with the
        extra copy of the first block, or None).

        =========================  ======================================================================
        ``Placement.on(device)``   new: the home
        ``.write_back(device)``    write: to an extra copy only, dirty until a move writes the copy back
        ``.cached(device)``        read-miss: whole blocks get a clean extra copy
        ``.alone()``               write and read-miss: to the home, past clean extra copies
        =========================  ======================================================================

        If the device has no room, the answer counts as None.
        """
        return None

    def plan(self, view: Any) -> Optional[Iterable[Move]]:
        """Background work, most important first, every ``period`` seconds. Moves that have not begun at the next
        plan are dropped.

        ``Move.migrate(extent, target)``, ``Move.promote(start, length, target)``, ``Move.demote(start, length)``,
        ``Move.write_back(start, length)``, ``Move.probe(device)``; ``start`` and ``length`` are bytes of the volume.
        """
        return None

    def extra_share(self, device: Any) -> float:
        """The largest share of a device for extra copies, 0 to 1."""
        return 0.0

    def evict(self, device: int) -> Optional[int]:
        """The block whose extra copy on a device makes room for another copy, or None for no eviction. A class
        without this method evicts the oldest clean copy."""
        return None

    def extra_changed(
        self, block: int, before: Optional[Tuple[int, bool]], now: Optional[Tuple[int, bool]]
    ) -> None:
        """An extra copy, ``(device, dirty)``, was made (``before`` is None), was dropped (``now`` is None), or
        became dirty or clean."""

    def completed(self, device: int, direction: str, length: int, latency: float, is_probe: bool) -> None:
        """A device completed a guest's request (``"read"``, ``"write"`` or ``"flush"``) or a probe, in ``latency``
        seconds."""

    def done(self, move: Move, outcome: str) -> None:
        """A move of the last plan ended: ``"finished"``, ``"stopped"`` (no room, or no time left) or ``"failed"``."""
