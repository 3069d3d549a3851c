"""The commands of the `herenow` program, one thin module each.

Errors are one sentence on stderr instead of a traceback. Exit codes: 0 done; 1 a problem was found or a service is
unavailable; 2 wrong usage or configuration.

A module is imported only when its command is run, and imports heavy packages inside its functions: `herenow token` must
not wait for rich or an HTTP client.
"""

from importlib import import_module

import click

from herenow import __version__
from herenow.errors import ConfigurationError, HerenowError, ProtocolError


class _ServiceUnavailable(click.ClickException):
    exit_code = 1


class _WrongUsage(click.ClickException):
    exit_code = 2


COMMANDS = {
    "serve": "serve:serve",
    "reap": "reap:reap",
    "token": "token:token",
    "config": "config:config",
    "import": "import_graph:import_",
    "migrate": "migrate:migrate",
    "top": "top:top",
    "doctor": "doctor:doctor",
}
"""Command name → module in this package, and the attribute that holds the command."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"herenow.cli.{module}"), attribute)
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ConfigurationError as error:
            raise _WrongUsage(str(error)) from None
        except ProtocolError as error:
            raise _WrongUsage(error.message) from None
        except HerenowError as error:
            raise _ServiceUnavailable(str(error)) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="herenow")
def main() -> None:
    """A self-hosted presence server: who is here now, and who may know it."""
