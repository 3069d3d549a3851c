"""Tools for asyncio programs, one small module each. They know nothing of presence and import only `herenow.errors`."""
