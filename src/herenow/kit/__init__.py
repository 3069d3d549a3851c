"""Tools for asyncio programs: one small module per tool, which is imported by its own name. Nothing here knows what
presence is, and nothing here imports anything of herenow but `herenow.errors`."""
