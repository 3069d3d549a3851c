"""herenow is a presence server: it answers which users are here now, and which users may see that."""

__version__ = "0.1.0"
