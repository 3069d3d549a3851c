"""Alembic's entry point: runs the migrations on the given connection, inside its open transaction."""

from alembic import context
from sqlalchemy import Connection

from herenow.ledgers.sql import VERSION_TABLE, metadata


def run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, version_table=VERSION_TABLE)
    context.run_migrations()


run(context.config.attributes["connection"])
