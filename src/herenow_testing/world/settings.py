"""Settings of a node under test. They are not checked: a test may choose timings that no operator may."""

from __future__ import annotations

from herenow.core.limits import FanoutLimits, Rate
from herenow.core.settle import Timings
from herenow.settings import Settings

DEFAULTS = Settings(ledger="sqlite://")


def node_settings(
    settings: Settings = DEFAULTS,
    *,
    embedded: bool | None = None,
    timings: Timings | None = None,
    polling: Rate | None = None,
    crowds: FanoutLimits | None = None,
    **fields: object,
) -> Settings:
    """Return `settings` with the named fields changed; `timings`, `polling` and `crowds` change several fields each.
    `embedded`: whether the live store ends with the node."""
    if embedded is not None:
        fields["engine"] = "memory://" if embedded else "redis://store"
    if timings is not None:
        for name in ("idle_after", "dead_after", "grace", "online_delay"):
            fields[name] = getattr(timings, name) / 1000
        fields["max_sessions_per_user"] = timings.max_sessions
    if polling is not None:
        fields |= {"poll_every": polling.every / 1000, "poll_burst": polling.burst}
    if crowds is not None:
        fields |= {"pace_above": crowds.pace_above, "push_ceiling": crowds.push_ceiling}
    if unknown := fields.keys() - Settings.model_fields.keys():
        raise TypeError(f"there are no such settings: {', '.join(sorted(unknown))}")
    return settings.model_copy(update=fields)
