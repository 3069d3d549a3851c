"""Inside `herenow.transport`, imports go one way, and a sub-package is imported by its face."""

from tests.source_tree import imports, modules

ORDER = ["server", "session", "http", "websocket", "auth", "address"]
"""Each may import those after it."""

PACKAGE = "herenow.transport."


def part_of(name: str) -> str:
    return name.removeprefix(PACKAGE).split(".")[0]


def edges() -> list[tuple[str, str]]:
    """(importing module, imported module) of every import between two parts."""
    return [
        (name, imported)
        for name, path in modules().items()
        if name.startswith(PACKAGE)
        for imported in imports(path)
        if imported.startswith(PACKAGE) and part_of(imported) != part_of(name)
    ]


def test_every_package_of_the_transport_layer_has_a_position_in_the_import_order():
    found = {part_of(name) for name in modules() if name.startswith(PACKAGE)}
    assert found == set(ORDER)


def test_packages_of_the_transport_layer_import_each_other_only_in_one_direction():
    back = [(a, b) for a, b in edges() if ORDER.index(part_of(b)) < ORDER.index(part_of(a))]
    assert back == []


def test_packages_of_the_transport_layer_are_imported_only_through_their_public_module():
    inside = [(a, b) for a, b in edges() if b.removeprefix(PACKAGE) not in ORDER]
    assert inside == []
