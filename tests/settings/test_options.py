"""Groups of settings are read from values by the names of options."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from dragoman.ports.extension import Option
from dragoman.settings.options import InvalidGroups, fields_by_option, options_of, read_groups, take_values


class Shop(BaseModel):
    size: Annotated[int, Field(ge=1), Option("shop_size", "N", "Size. [3]")] = 3
    town: Annotated[str, Option("shop_town", "NAME", "Town. [none]")] = ""


class Shelf(BaseModel):
    width: Annotated[int, Option("width", "N", "Width. [1]")] = 1


GROUPS: dict[str, type[BaseModel]] = {"shop": Shop, "shelf": Shelf}


def test_each_field_has_its_option() -> None:
    assert [option.name for option, _ in options_of(Shop).values()] == ["shop_size", "shop_town"]
    assert {name: field.default for name, (_, field) in fields_by_option(GROUPS.values()).items()} == {
        "shop_size": 3,
        "shop_town": "",
        "width": 1,
    }


def test_a_field_without_an_option_is_rejected() -> None:
    class Plain(BaseModel):
        size: int = 3

    with pytest.raises(ValueError, match="the setting size has no Option"):
        options_of(Plain)


def test_values_go_to_the_group_that_has_their_option() -> None:
    values: dict[str, Any] = {"shop_size": "4", "width": 2, "other": 5}
    assert take_values(GROUPS, values) == {"shop": {"size": "4"}, "shelf": {"width": 2}}
    assert values == {"other": 5}


def test_groups_have_their_values_and_defaults() -> None:
    found = read_groups(GROUPS, {"shop_size": "4"})
    assert found == {"shop": Shop(size=4), "shelf": Shelf()}
    assert found["shop"].model_fields_set == {"size"}


def test_all_invalid_values_and_unknown_names_are_reported_by_their_options() -> None:
    with pytest.raises(InvalidGroups) as caught:
        read_groups(GROUPS, {"shop_size": 0, "width": "wide", "depth": 1})
    assert [error["loc"][0] for error in caught.value.errors] == ["shop_size", "width", "depth"]
    assert str(caught.value).startswith("--shop-size: Input should be greater than or equal to 1; --width: ")
