"""The version of the package, importable without the package's public names."""

__version__ = "0.2.0.dev0"
