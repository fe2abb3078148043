"""A week of the business time zone as a window: ``2026-W48``, or ``last``, the newest complete one."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from pipeline.errors import ConfigError

_ISO_WEEK = re.compile(r"(\d{4})-?W(\d{2})")


def window(week: str, time_zone: str, today: date) -> tuple[datetime, datetime]:
    """Return start and end (not included) of a week as naive UTC.

    Args:
        week: an ISO week, or ``last``: the newest week that has ended on *today*.
        time_zone: the business time zone, whose midnights bound the week.
        today: the present business day.

    Raises:
        ConfigError: no such week.
    """
    if week == "last":
        monday = today - timedelta(days=today.weekday() + 7)
    else:
        found = _ISO_WEEK.fullmatch(week)
        try:
            if found is None:
                raise ValueError(week)
            monday = date.fromisocalendar(int(found[1]), int(found[2]), 1)
        except ValueError:
            raise ConfigError(
                f"--week {week} is no week.",
                next_step="Write it as 2026-W48, or last for the newest complete one.",
            ) from None
    zone = ZoneInfo(time_zone)
    start, end = (datetime.combine(d, time(), zone) for d in (monday, monday + timedelta(days=7)))
    return start.astimezone(UTC).replace(tzinfo=None), end.astimezone(UTC).replace(tzinfo=None)
