"""Reading config.json: every value is checked once, and an error names the field."""

import json
from pathlib import Path
from typing import Any

from headrace_server.errors import ConfigError

LARGEST = 2**31 - 1  # of a size; beyond it products of two no longer fit 64 bits


class Fields:
    """The fields of one JSON object. `path` leads to it, for messages: "config.json" or "config.json: rope_scaling"."""

    def __init__(self, values: dict[str, Any], path: str) -> None:
        self._values = values
        self._path = path

    @classmethod
    def read(cls, file: Path) -> "Fields":
        """Raises ConfigError if the file is missing or is no JSON object."""
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"{file} does not exist; a model directory holds config.json and *.safetensors") from None
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file} cannot be read: {error}") from None
        if not isinstance(values, dict):
            raise ConfigError(f"{file} is not a JSON object")
        return cls(values, file.name)

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(name) is not None

    def is_null(self, name: str) -> bool:
        """Whether the field says null, which is not the same as being absent."""
        return name in self._values and self._values[name] is None

    def names(self) -> tuple[str, ...]:
        """Of all fields, in their order."""
        return tuple(self._values)

    def count(self, name: str, default: int) -> int:
        """An integer that may be 0."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.error(name, f"is {value!r}; it must be an integer, at least 0")
        return value

    def whole(self, name: str, default: int) -> int:
        """An integer of either sign."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"is {value!r}; it must be an integer")
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        """A positive integer; without a default the field must be there."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error(name, f"is {value!r}; it must be a positive integer")
        if value > LARGEST:
            raise self.error(name, f"is {value}, more than any model has; correct it")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A positive number; without a default the field must be there."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self.error(name, f"is {value!r}; it must be a positive number")
        return float(value)

    def boolean(self, name: str, default: bool) -> bool:
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self.error(name, f"is {value!r}; it must be true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self._get(name, default)
        if not isinstance(value, str):
            raise self.error(name, f"is {value!r}; it must be a string")
        return value

    def numbers(self, name: str, length: int) -> tuple[float, ...]:
        """A list of `length` numbers."""
        value = self._list(name, length)
        if not all(isinstance(item, int | float) and not isinstance(item, bool) for item in value):
            raise self.error(name, "must hold numbers only")
        return tuple(float(item) for item in value)

    def texts(self, name: str, length: int) -> tuple[str, ...]:
        """A list of `length` strings."""
        value = self._list(name, length)
        if not all(isinstance(item, str) for item in value):
            raise self.error(name, "must hold strings only")
        return tuple(value)

    def nested(self, name: str) -> "Fields | None":
        """The JSON object under `name`, or None if it is absent or null."""
        if not self.has(name):
            return None
        value = self._values[name]
        if not isinstance(value, dict):
            raise self.error(name, f"is {value!r}; it must be an object")
        return Fields(value, f"{self._path}: {name}")

    def error(self, name: str, problem: str) -> ConfigError:
        """An error about one field, to be raised by the caller."""
        return ConfigError(f"{self._path}: '{name}' {problem}")

    def _get(self, name: str, default: Any) -> Any:
        value = self._values.get(name)
        if value is None:
            value = default
        if value is None:
            raise self.error(name, "is missing")
        return value

    def _list(self, name: str, length: int) -> list[Any]:
        value = self._get(name, None)
        if not isinstance(value, list) or len(value) < length:
            raise self.error(name, f"must be a list of at least {length} items")
        return value[:length]
