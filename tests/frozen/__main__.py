"""`python -m tests.frozen`: writes the frozen files again after an intended change of a public contract."""

from tests.frozen.contracts import CONTRACTS, FOLDER

for name, produce in CONTRACTS.items():
    (FOLDER / name).write_text(produce())
