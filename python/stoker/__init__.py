"""Stoker's Python side.  For now it draws plans (stoker.plot); batches come through the C interface and the command line."""

__version__ = "0.1.0"
