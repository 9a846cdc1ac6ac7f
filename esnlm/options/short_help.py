"""The short help of a command: the options that most runs need."""

from typing import Any

from cyclopts.help import DefaultFormatter, HelpPanel

from esnlm.options.help_pages import ESSENTIALS


class ShortHelp(DefaultFormatter):
    """Help of a command without its less common options."""

    def __init__(self, command: str) -> None:
        super().__init__()
        self.names = {"SHARDS|TEXT", *ESSENTIALS[command]}

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        """Print a panel, without its text, where an option of it is shown."""
        shown = [entry for entry in panel.entries if self.names & {*entry.positive_names}]
        if shown:
            super().__call__(console, options, HelpPanel(panel.format, panel.title, "", shown))
