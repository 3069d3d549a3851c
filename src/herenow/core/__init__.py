"""What presence means: pure values and functions. No clock, no I/O, no asyncio."""
