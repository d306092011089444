"""What can go wrong while preparing a model."""

from headrace_server.errors import HeadraceError


class PrepareError(HeadraceError):
    """The model cannot be prepared. The message is one line: which path or name, what is wrong, what to do."""

    def __init__(self, message: str) -> None:
        # Details may come from other libraries with line breaks in them; the promise of one line is kept here.
        super().__init__(" ".join(message.split()))
