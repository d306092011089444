"""Fields of quantized checkpoints that are checked alike, whoever made them."""

from headrace_server.fields import Fields


def only(fields: Fields, name: str, value: object, *supported: object) -> None:
    """Raises ConfigError unless the field's value is one of those."""
    if value not in supported:
        raise fields.error(name, f"is {_shown(value)}; supported: {', '.join(map(_shown, supported))}")


def _shown(value: object) -> str:
    return str(value).lower()


def group_size_of(fields: Fields, name: str) -> int | None:
    group_size = fields.whole(name, 128)
    if group_size == -1:
        return None
    if group_size < 1 or group_size % 32:
        raise fields.error(name, f"is {group_size}; supported: multiples of 32, and -1 for one group of all inputs")
    return group_size
