"""Commands run as an operator runs them: in an empty folder, without configuration."""

import os

import pytest
from click.testing import CliRunner

from herenow.cli import main


@pytest.fixture(autouse=True)
def in_an_empty_folder(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.upper().startswith("HERENOW_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def herenow():
    def run(*arguments, stdin=None):
        return CliRunner().invoke(main, arguments, input=stdin, catch_exceptions=False)

    return run
