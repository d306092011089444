"""What a PromQL expression asks for, held against the series that there are.

The package `promql-parser` knows PromQL's grammar, functions and types. This module adds what only the series can tell:
whether a selector finds any, and which labels a result has.
"""

import re
from collections.abc import Callable, Iterable, Sequence

import promql_parser as promql

from harness.metrics import Series

Labels = frozenset[str]
Find = Callable[[str], Sequence[Series]]

SET_OPERATORS = {"and", "unless"}


class Nonsense(AssertionError):
    """An expression that Prometheus would evaluate to nothing, whatever happens."""


def result_labels(expression: str, find: Find) -> Labels:
    """The labels of an expression's result; `find` gives the series of a name. Raises `Nonsense`."""
    labels = _labels(promql.parse(expression), find)
    return frozenset() if labels is None else labels


def metric_names(expression: str) -> set[str]:
    names: set[str] = set()

    def visit(node: promql.Expr) -> None:
        if isinstance(node, promql.VectorSelector):
            names.add(node.name or "")

    promql.walk(promql.parse(expression), visit)
    return names


def _labels(node: promql.Expr, find: Find) -> Labels | None:
    """None: a number or a text, which has no labels and goes with everything."""
    match node:
        case promql.VectorSelector():
            return _selected(node, find)
        case promql.MatrixSelector():
            return _selected(node.vector_selector, find)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return _labels(node.expr, find)
        case promql.AggregateExpr():
            return _aggregated(node, _labels(node.expr, find))
        case promql.BinaryExpr():
            return _joined(node, _labels(node.lhs, find), _labels(node.rhs, find))
        case promql.Call():
            return _called(node, [_labels(argument, find) for argument in node.args])
        case promql.NumberLiteral() | promql.StringLiteral():
            return None
    raise Nonsense(f"{node.prettify()}: not known here")


def _selected(node: promql.VectorSelector, find: Find) -> Labels:
    found = [s for s in find(node.name or "") if all(_fits(s, m) for m in node.matchers.matchers)]
    if not found:
        raise Nonsense(f"{node} finds nothing")
    unknown = {matcher.name for matcher in node.matchers.matchers} - found[0].label_names
    if unknown:
        raise Nonsense(f"{node}: no label {unknown}")
    return found[0].label_names


def _fits(series: Series, matcher: promql.Matcher) -> bool:
    value = dict(series.labels).get(matcher.name, "")
    match matcher.op:
        case promql.MatchOp.Equal:
            return value == matcher.value
        case promql.MatchOp.NotEqual:
            return value != matcher.value
        case promql.MatchOp.Re:
            return re.fullmatch(matcher.value, value) is not None
        case promql.MatchOp.NotRe:
            return re.fullmatch(matcher.value, value) is None
    raise Nonsense(f"{matcher}: not known here")


def _aggregated(node: promql.AggregateExpr, inner: Labels | None) -> Labels:
    named = frozenset(node.modifier.labels if node.modifier else ())
    if inner is None or not named <= inner:
        raise Nonsense(f"{node.prettify()}: of {set(inner or ())}")
    if node.modifier and node.modifier.type == promql.AggModifierType.Without:
        return inner - named
    return named


def _joined(node: promql.BinaryExpr, left: Labels | None, right: Labels | None) -> Labels | None:
    if left is None or right is None:
        return left if right is None else right
    matching = node.modifier.matching if node.modifier else None
    if matching is None:
        if left != right:
            raise Nonsense(f"{node.prettify()}: {set(left)} on the left never meets {set(right)} on the right")
        return left
    if matching.type != promql.LabelModifierType.Include:
        raise Nonsense(f"{node.prettify()}: `ignoring` is not known here")
    named = frozenset(matching.labels)
    if not named <= left & right:
        raise Nonsense(f"{node.prettify()}: {set(left)} and {set(right)} have not all of {set(named)}")
    return left if str(node.op) in SET_OPERATORS else named


def _called(node: promql.Call, arguments: Iterable[Labels | None]) -> Labels | None:
    labels = next((labels for labels in arguments if labels is not None), None)
    if node.func.name == "histogram_quantile":
        if labels is None or "le" not in labels:
            raise Nonsense(f"{node.prettify()}: no buckets")
        return labels - {"le"}
    if node.func.name in ("absent", "absent_over_time"):
        return frozenset()
    return labels
