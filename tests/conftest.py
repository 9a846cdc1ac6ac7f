"""Settings that every test shares."""

import signal

from hypothesis import settings

# Compilation on first use makes single examples slow; what is tested does not depend on time.
settings.register_profile("esnlm", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("esnlm")

# A suite started in the background ignores interrupts, and so would every process that it starts
# to see one interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)
