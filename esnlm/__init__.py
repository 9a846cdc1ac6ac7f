"""Language models whose recurrence is frozen: reservoirs, readouts, and what they are measured by.

The public names, listed in ``__init__.pyi``, load on first use: ``import esnlm`` stays fast.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
