"""What an operator reads about an error."""

from headrace_server.errors import ConfigError, one_line


def test_an_error_of_ours_is_its_own_sentence() -> None:
    assert one_line(ConfigError("config.json: 'x' is\n  missing")) == "config.json: 'x' is missing"


def test_any_other_error_is_one_line_with_its_type_and_where_to_learn_more() -> None:
    line = one_line(KeyError("rope\nlong text"))
    assert line.startswith("unexpected KeyError: 'rope")
    assert line.endswith("; --log-level debug shows where it happened")
    assert "\n" not in line
    assert one_line(ValueError()).startswith("unexpected ValueError: no further words")
