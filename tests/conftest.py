"""Settings that every test shares."""

from hypothesis import settings

# Compilation on first use makes single examples slow; what is tested does not depend on time.
settings.register_profile("esnlm", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("esnlm")
