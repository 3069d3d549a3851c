"""herenow answers one question for any application: who is here now, and who may know it?"""

__version__ = "0.1.0"
