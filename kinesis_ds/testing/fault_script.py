"""Choose the faults that strike a call, or an event of a subscription. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_ds.testing.faults import CallAction, Fault, StreamAction, Target


class _Loaded:
    """A fault in the script, with what it has met since it was added."""

    def __init__(self, fault: Fault, now: float) -> None:
        self.fault = fault
        self.since = now
        self.calls = 0
        self.struck = 0

    def concerns(self, target: Target) -> bool:
        """Return whether a call is one of those that the fault is about."""
        fault = self.fault
        return fault.operation == target.operation and all(
            wanted is None or wanted == given
            for wanted, given in (
                (fault.stream, target.stream),
                (fault.shard, target.shard),
                (fault.consumer, target.consumer),
            )
        )

    @property
    def spent(self) -> bool:
        return self.fault.times is not None and self.struck >= self.fault.times


class FaultScript:
    """The faults still to come. The caller says which calls are made, and when.

    Attributes:
        struck: The faults that struck, in order, each with what was struck.
    """

    def __init__(self) -> None:
        self._loaded: list[_Loaded] = []
        self.struck: list[tuple[Fault, Target]] = []

    def add(self, faults: Sequence[Fault], now: float) -> None:
        """Add faults; their calls and seconds are counted from now."""
        self._loaded += [_Loaded(fault, now) for fault in faults]

    def clear(self) -> None:
        """Forget the faults still to come, also inside subscriptions that are open."""
        for loaded in self._loaded:
            loaded.struck = loaded.fault.times or 0
        self._loaded.clear()

    def pending(self) -> list[Fault]:
        """Return the faults that may still strike."""
        return [loaded.fault for loaded in self._loaded if not loaded.spent]

    def on_call(self, target: Target, now: float) -> tuple[list[CallAction], StreamFaults]:
        """Return what happens to a call itself, and the faults to apply to its event stream."""
        actions: list[CallAction] = []
        later: list[_Loaded] = []
        for loaded in self._loaded:
            if not loaded.concerns(target):
                continue
            loaded.calls += 1
            if loaded.spent or loaded.fault.call not in (None, loaded.calls):
                continue
            if loaded.fault.in_stream:
                later.append(loaded)
            elif now - loaded.since >= loaded.fault.after_s:
                loaded.struck += 1
                self.struck.append((loaded.fault, target))
                actions.append(loaded.fault.action)  # type: ignore[arg-type]
        self._loaded = [loaded for loaded in self._loaded if not loaded.spent or loaded in later]
        return actions, StreamFaults(later, target, self.struck)


class StreamFaults:
    """The faults that may strike inside one subscription."""

    def __init__(
        self, loaded: list[_Loaded], target: Target, struck: list[tuple[Fault, Target]]
    ) -> None:
        self._loaded = loaded
        self._target = target
        self._struck = struck

    def at_event(self, number: int, now: float) -> list[StreamAction]:
        """Return what happens at the n-th event of this subscription, counted from 1.

        A fault whose time had not come at its event strikes at the first event after that.
        """
        found: list[StreamAction] = []
        for loaded in self._loaded:
            fault = loaded.fault
            due = number == fault.event or (number > fault.event and fault.after_s > 0)
            if due and not loaded.spent and now - loaded.since >= fault.after_s:
                loaded.struck += 1
                self._struck.append((fault, self._target))
                found.append(fault.action)  # type: ignore[arg-type]
        return found
