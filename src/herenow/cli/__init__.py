"""The commands an operator types; each in its own file, all of them thin.

What they share is here: one sentence on stderr instead of a traceback, and three exit codes. 0: done. 1: a
problem was found, or a service is away. 2: wrong usage or configuration.
"""

import click

from herenow import __version__
from herenow.cli.config import config
from herenow.cli.doctor import doctor
from herenow.cli.importing import import_
from herenow.cli.migrate import migrate
from herenow.cli.reap import reap
from herenow.cli.serve import serve
from herenow.cli.token import token
from herenow.cli.top import top
from herenow.errors import ConfigurationError, HerenowError, ProtocolError


class _Trouble(click.ClickException):
    """A service is out of reach."""

    exit_code = 1


class _Mistake(click.ClickException):
    """A setting or an argument is wrong."""

    exit_code = 2


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ConfigurationError as error:
            raise _Mistake(str(error)) from None
        except ProtocolError as error:
            raise _Mistake(error.message) from None
        except HerenowError as error:
            raise _Trouble(str(error)) from None


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="herenow")
def main() -> None:
    """herenow: who is here now, and who may know it?"""


for command in (serve, reap, token, config, import_, migrate, top, doctor):
    main.add_command(command)
