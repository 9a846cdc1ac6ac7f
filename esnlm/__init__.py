"""Language models whose recurrence is frozen: reservoirs, readouts, and what they are measured by.

The public names, listed in ``__init__.pyi``, load on first use: ``import esnlm`` stays fast.
"""

import csv

import lazy_loader

csv.field_size_limit(2**31 - 1)  # a text of a CSV may be long
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
