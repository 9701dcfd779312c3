"""What each route of the API needs, takes and answers, said once, beside its handler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from webhooks.scopes import Scope

View = TypeVar("View", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter; ``type`` is a Python annotation, as msgspec has them."""

    name: str
    description: str
    type: Any = str


@dataclass(frozen=True, slots=True)
class Operation:
    """One route and method. ``scope`` None: any key will do.

    ``body`` and ``answer`` are msgspec structs (None: there is none), ``status`` that of
    the usual answer, ``also`` others that look the same. ``own_keys``: it looks after
    idempotency keys by itself; ``public``: it needs no key at all.
    """

    scope: Scope | None
    body: Any = None
    answer: Any = None
    status: int = 200
    also: Sequence[int] = ()
    parameters: Sequence[Parameter] = ()
    own_keys: bool = False
    public: bool = False


def operation(
    scope: Scope | None,
    *,
    body: Any = None,
    answer: Any = None,
    status: int = 200,
    also: Sequence[int] = (),
    parameters: Sequence[Parameter] = (),
    own_keys: bool = False,
    public: bool = False,
) -> Callable[[View], View]:
    """Say of a view what it needs, takes and answers; its docstring says what it does."""

    def describe(view: View) -> View:
        view.operation = Operation(  # type: ignore[attr-defined]
            scope, body, answer, status, also, parameters, own_keys, public
        )
        return view

    return describe
