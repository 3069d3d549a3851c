"""The protocol between client and node: frames, REST shapes, codes. Pure: no clock, no I/O. Times are epoch milliseconds."""
