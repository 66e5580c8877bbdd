"""A policy of one's own, in Python: it runs in simulations, beside those that are built in.

A policy decides where bytes go (``place``) and what moves in the background (``plan``); the engine that serves volumes does it. This one keeps
the extents that are asked for most on the SSD::

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

A simulation with such a policy begins 10,000 to 100,000 requests a second, by what ``place`` does; a built-in one, millions. Policies
of two simulations at the same time share one interpreter: more threads make them no faster.
"""

from __future__ import annotations

from typing import Any, Iterable, Optional, Tuple

from ._native import Move, Placement


class Policy:
    """A policy: derive a class, and give the class (or what else returns a new instance without arguments) as ``policy``.

    Each simulation makes an instance of its own. An exception, or an answer that cannot be, ends all simulations of the call, which raises it.
    The same answers to the same questions give the same figures: draw numbers from ``random.Random(seed)``, not from ``random``.

    ``view`` is the volume at that moment: ``now`` (seconds), ``extent_size``, ``block_size`` (bytes), ``extents`` (how many), ``devices`` (each with
    ``id``, ``is_ssd``, ``slots``, ``free``, ``in_flight``, and ``read_latency`` in seconds, None before the first read). In ``plan`` it
    has ``homes``, an array with the device of each extent (-1: not written yet), and ``extras``, a dict of the extra copies, block to
    ``(device, dirty)``; both are None in ``place``.
    """

    period: float = 1.0
    """Seconds between two plans."""

    def place(self, occasion: Any, view: Any) -> Optional[Placement]:
        """Where bytes go that a guest writes or reads; None leaves them where they are, and gives a new extent to the roomiest device.

        ``occasion`` has ``kind`` (``"new"``: an extent without a home is written; ``"write"``, ``"read-miss"``; ``"read-hit"``: the memory cache has it),
        ``extent``, ``start`` and ``length`` (bytes of the volume, within the extent), ``first_block``, ``blocks``, ``home`` (its
        device, or None) and ``extra`` (the device of the extra copy of the first block, or None).

        ============================  ==========================================================================
        ``Placement.on(device)``      new: the home
        ``.write_back(device)``       write: to an extra copy alone, which is dirty until a move writes it back
        ``.cached(device)``           read-miss: whole blocks get a clean extra copy
        ``.alone()``                  write and read-miss: to the home, past a clean extra copy
        ============================  ==========================================================================

        An answer for which a device has no room falls back to None.
        """
        return None

    def plan(self, view: Any) -> Optional[Iterable[Move]]:
        """What to do in the background, in order of importance, every ``period`` seconds. A move that has not begun at the next plan is given up.

        ``Move.migrate(extent, target)``, ``Move.promote(start, length, target)``, ``Move.demote(start, length)``, ``Move.write_back(start,
        length)`` and ``Move.probe(device)``; ranges are bytes of the volume.
        """
        return None

    def extra_share(self, device: Any) -> float:
        """The share of a device that extra copies may have, 0 to 1."""
        return 0.0

    def evict(self, device: int) -> Optional[int]:
        """The block whose extra copy on a device makes room for another; None keeps all. Without this method, the clean copy that was made first."""
        return None

    def extra_changed(self, block: int, before: Optional[Tuple[int, bool]], now: Optional[Tuple[int, bool]]) -> None:
        """An extra copy, ``(device, dirty)``, was made (``before`` is None), is gone (``now`` is None), or is dirty or clean now."""

    def completed(self, device: int, direction: str, length: int, latency: float, is_probe: bool) -> None:
        """A device has served a guest's request, ``"read"``, ``"write"`` or ``"flush"``, or a probe, in ``latency`` seconds."""

    def done(self, move: Move, outcome: str) -> None:
        """A move of the last plan has ended: ``"finished"``, ``"stopped"`` (there was no room, or no time) or ``"failed"``."""
