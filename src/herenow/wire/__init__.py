"""What travels between a client and a node: frames in, frames out, and the codes both sides know.

Pure: no clock, no I/O, no asyncio. Time is an argument, in epoch milliseconds.
"""
