"""`python -m tests.frozen`: writes the frozen files anew, after a public contract was changed on purpose."""

from tests.frozen.contracts import CONTRACTS, FOLDER

for name, produce in CONTRACTS.items():
    (FOLDER / name).write_text(produce())
