"""``python -m esnlm``."""

import sys

from esnlm.cli import main

if __name__ == "__main__":
    sys.exit(main())
