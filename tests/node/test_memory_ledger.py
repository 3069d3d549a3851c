"""The memory ledger of these tests keeps the same promises as the real ones, and it can fail."""

import pytest

from herenow.errors import Unavailable
from herenow_testing.contracts.ledger import LedgerContract
from herenow_testing.world.memory_ledger import MemoryLedger


class TestMemoryLedger(LedgerContract):
    @pytest.fixture
    async def ledger(self):
        ledger = MemoryLedger()
        await ledger.open()
        yield ledger
        await ledger.close()


async def test_a_memory_ledger_made_unavailable_by_a_test_raises_unavailable_and_saves_nothing():
    ledger = MemoryLedger()
    ledger.away = True
    with pytest.raises(Unavailable):
        await ledger.save_last_seen({"ana": 1})
    ledger.away = False
    assert await ledger.remembered(["ana"]) == {}
