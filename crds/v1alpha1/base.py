"""The one base of all API types: frozen, camelCase on the wire, newer fields are ignored on reading.

An old agent must survive a field that a newer controller wrote, so reading never forbids extras; the API server's
closed schema is what refuses a typing error. Optional means absent: `None` is never written. The text below a field is
its description in the schema.
"""

import ast
import inspect
from itertools import pairwise
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, JsonValue
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

LIST_MAP = "map"
ATOMIC = "atomic"


class Wire(BaseModel):
    """A part of an object at the API."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True, use_enum_values=True, strict=True
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """With the texts below fields: pydantic's own reading of these would take a tenth of a second at each start."""
        schema = handler.resolve_ref_schema(handler(core))
        [definition] = ast.parse(inspect.getsource(cls)).body
        for field, text in pairwise(definition.body if isinstance(definition, ast.ClassDef) else ()):
            match field, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(description))):
                    alias = str(cls.model_fields[name].alias)
                    schema["properties"][alias]["description"] = " ".join(description.split())
        return schema

    @classmethod
    def read(cls, raw: Any) -> Self:
        """Parse decoded JSON; raises pydantic.ValidationError naming the field."""
        return cls.model_validate(raw, strict=False)

    def wire(self) -> dict[str, Any]:
        """The JSON form, without absent fields."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")


def cel(rule: str, message: str, **more: str) -> JsonValue:
    """One entry of x-kubernetes-validations; the message is written for the user."""
    return {"rule": rule, "message": message, **more}


def rules(*each: JsonValue) -> dict[str, Any]:
    """Schema extras of what has these rules in CEL."""
    return {"x-kubernetes-validations": list(each)}


def atomic(**extra: Any) -> dict[str, Any]:
    """Schema extras of a list with one writer: replaced whole."""
    return {"x-kubernetes-list-type": ATOMIC, **extra}


def list_map(*keys: str) -> dict[str, Any]:
    """Schema extras of a list whose items are found by key."""
    return {"x-kubernetes-list-type": LIST_MAP, "x-kubernetes-list-map-keys": list(keys)}
