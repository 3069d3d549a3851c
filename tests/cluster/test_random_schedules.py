import os

import pytest
from structlog.testing import capture_logs
from tests.cluster.schedule import Schedule

pytestmark = pytest.mark.looptime(noop_cycles=0)
SEEDS = range(int(os.environ.get("HERENOW_SEEDS", "20")))


@pytest.mark.parametrize("seed", SEEDS)
async def test_people_are_shown_what_is_true_whatever_fails(seed):
    schedule = Schedule(seed)
    with capture_logs() as logs:
        try:
            problems = await schedule.run()
        finally:
            await schedule.close()
    problems += [
        str(line) for line in logs if line["event"] in ("task.died", "decide.failed") or line.get("exc_info")
    ]
    if problems:
        print("\n".join(schedule.trace))
        print(schedule.checker.counts)
    assert not problems, "\n".join(problems[:5])
