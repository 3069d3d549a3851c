"""Real processes on real stores with every fault once, in an order given by a seed.

`./dev chaos --minutes 30` runs longer.
"""

import os

import pytest
from tests.faults.lab import wrongs
from tests.faults.stages import STAGES

SEED = int(os.environ.get("HERENOW_SEED", "1"))


@pytest.mark.parametrize("stage", STAGES)
async def test_viewers_see_true_statuses_during_faults_of_real_nodes_stores_and_databases(stage, tmp_path):
    async with STAGES[stage](tmp_path, SEED) as lab:
        try:
            await lab.run()
        except Exception:
            print("\n".join(lab.people.trace))
            raise
        story = "\n".join([str(lab.report()), *lab.people.trace, *wrongs(lab)])
        assert not wrongs(lab), story
        counts = lab.checker.counts
        assert counts["shown"] > 100, story
        assert counts["looked"] > 100, story
        assert counts["told"] > 100, story
        assert counts["last seen"] > 2 * len(lab.people.users), story
        assert counts["choices"] > 2 * len(lab.people.users), story
        assert counts["compared"] >= 3 * 3 * len(lab.people.users), story
        print(lab.report())
