"""Generated HTTP requests for every rule, from a seed. At most one oddity of each explains its differences."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import quote, quote_plus

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from google.rpc import code_pb2, error_details_pb2, status_pb2
from tests.transcoders.replies import random_message
from tests.transcoders.services import Service
from tests.transcoders.values import FORMS, Choice, is_wrapper

from dragoman.transcoding import Rule, Wildcard

_IDS: Final = ("a", "42", "task-1", "t_1.x~", "A!$'()*,;=@z", "ünï", "two words", "100%", "a+b", "q?&#", "日本")
_ODD_IDS: Final = {
    "colon in a path variable": "a:b",
    "encoded slash in a path variable": "a%2Fb",
    "encoded slash in lower case": "a%2fb",
    "encoded colon in a path variable": "a%3Ab",
    "path variable that is a literal of another rule": "tasks",
    "invalid UTF-8 in the path": "a%FF",
    "invalid escape in the path": "a%zz",
    "empty path variable": "",
    "one dot as a path variable": ".",
    "two dots as a path variable": "..",
}
_ODD_BODIES: Final = {
    "no body": "",
    "truncated body": '{"',
    "body of blanks": "  ",
    "null as body": "null",
    "body of another type": "true",
    "body after a byte order mark": "\ufeff{}",
    "text after the body": "{} {}",
    "NaN in the body": '{"metadata": NaN}',
    "single quotes in the body": "{'text': 'a'}",
    "comment in the body": "{} // nothing",
    "trailing comma in the body": '{"text": "a",}',
    "control character in the body": '{"text": "a\x01"}',
    "nesting of 300 levels": '{"metadata": ' + '{"a":' * 300 + "1" + "}" * 301,
}
_ODD_PATHS: Final = (
    "trailing slash",
    "double slash",
    "unknown verb",
    "unknown path",
    "wrong method",
    "encoded literal",
)
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_RECURSION: Final = 3
_SEEDED_CODES: Final = [code for code in code_pb2.Code.values() if code]


@dataclass(frozen=True)
class Case:
    """One request, and the reply of the gRPC server to it."""

    service: int
    rule: str
    rpc: str
    """The gRPC path of the rule's method."""
    method: str
    path: str
    query: str
    body: bytes | None
    oddity: str
    replies: tuple[Any, ...] = ()
    """Messages; several in a stream. Empty with `failure`."""
    failure: Any = None
    """A google.rpc.Status."""
    is_stream: bool = False
    response_body: str = ""

    def line(self) -> str:
        """The request as `judge send` reads it."""
        encoded = [base64.b64encode(reply.SerializeToString()).decode() for reply in self.replies]
        headers = {"X-Reply": ",".join(encoded)} if self.failure is None else {}
        if self.failure is not None:
            headers["X-Status"] = base64.b64encode(self.failure.SerializeToString()).decode()
        headers["X-Rpc"] = self.rpc
        body = None if self.body is None else base64.b64encode(self.body).decode()
        request = {"service": self.service, "method": self.method, "path": self.path, "query": self.query}
        return json.dumps({**request, "body": body, "headers": headers})


def cases(service: Service, count: int, seed: str) -> Iterator[Case]:
    """Yields `count` cases for each rule. The same seed yields the same cases."""
    for number, (method, rule) in enumerate(service.rules):
        for index in range(count):
            rng = random.Random(f"{seed}/{service.index}/{number}/{index}")
            yield _Writer(service, method, rule, rng).case()


class _Writer:
    """Writes one case."""

    def __init__(self, service: Service, method: MethodDescriptor, rule: Rule, rng: random.Random) -> None:
        self.service = service
        self.rule = rule
        self.method = method
        self.rng = rng
        self.choice = Choice(rng, odd=rng.random() < 0.6)
        if rule.http_method not in _METHODS:
            self.choice.oddity = "HTTP method of the service's own"
        self.request = method.input_type

    def case(self) -> Case:
        method, path = self._path()
        body, in_body = self._body()
        bound = {".".join(variable.field[:1]) for variable in self.rule.template.variables} | in_body
        query = self._query(bound, reads_body=self.rule.body != "")
        failure = self._failure() if self.rng.random() < 0.15 else None
        replies: tuple[Any, ...] = ()
        if failure is None:
            count = self.rng.randint(1, 3) if self.method.server_streaming else 1
            replies = tuple(random_message(GetMessageClass(self.method.output_type), self.rng) for _ in range(count))
        name = f"{self.rule.http_method} {self.rule.template}"
        rpc = f"/{self.service.descriptor.full_name}/{self.method.name}"
        return Case(
            self.service.index,
            name,
            rpc,
            method,
            path,
            query,
            body,
            self.choice.oddity,
            replies,
            failure,
            self.method.server_streaming,
            self.rule.response_body,
        )

    def _failure(self) -> Any:
        status = status_pb2.Status(code=self.rng.choice(_SEEDED_CODES), message=self.rng.choice(["", "no", "näin ei"]))
        if self.rng.random() < 0.5:
            info = error_details_pb2.ErrorInfo(reason="WHY", domain="example.com", metadata={"a": "b"})
            status.details.add().Pack(info)
        if self.rng.random() < 0.3:
            bad = error_details_pb2.BadRequest()
            bad.field_violations.add(field="text", description="is wrong")
            status.details.add().Pack(bad)
        return status

    # ---- the path

    def _path(self) -> tuple[str, str]:
        template = self.rule.template
        segments = [part if isinstance(part, str) else self._segment(part) for part in template.segments]
        for variable in template.variables:
            leaf = _leaf(self.request, variable.field)
            if variable.is_single and not _is_text(leaf):
                form = self.choice.form(leaf, as_text=True)
                assert form is not None
                segments[variable.start] = quote(form.text or "0", safe="")
        verb = f":{template.verb}" if template.verb else ""
        method = self.rule.http_method
        if self.choice.wants_oddity(0.05):
            self.choice.oddity = self.rng.choice(_ODD_PATHS)
            match self.choice.oddity:
                case "trailing slash":
                    segments.append("")
                case "double slash":
                    segments.insert(1, "")
                case "unknown verb":
                    verb = ":nothing"
                case "unknown path":
                    segments.insert(0, "nothing")
                case "wrong method":
                    method = "PATCH" if method == "PUT" else "PUT"
                case "encoded literal":
                    literals = [index for index, part in enumerate(template.segments) if isinstance(part, str)]
                    index = self.rng.choice(literals)
                    segments[index] = f"%{ord(segments[index][0]):02X}{segments[index][1:]}"
        return method, "/" + "/".join(segments) + verb

    def _segment(self, part: Wildcard) -> str:
        if self.choice.wants_oddity(0.1):
            self.choice.oddity = self.rng.choice(list(_ODD_IDS))
            return _ODD_IDS[self.choice.oddity]
        count = self.rng.randint(1, 3) if part is Wildcard.REST else 1
        return "/".join(quote(self.rng.choice(_IDS), safe="") for _ in range(count))

    # ---- the body

    def _body(self) -> tuple[bytes | None, set[str]]:
        """The body, and the top-level fields that it may set."""
        body = self.rule.body
        if not body:
            if self.choice.wants_oddity(0.03):
                self.choice.oddity = "body where the rule has none"
                return b"{}", set()
            return None, set()
        everything = set(self.request.fields_by_name)
        if self.choice.wants_oddity(0.15):
            self.choice.oddity = self.rng.choice(list(_ODD_BODIES))
            return _ODD_BODIES[self.choice.oddity].encode(), everything if body == "*" else {body}
        depth = 0 if body == "*" else 1
        message = self.request if body == "*" else self.request.fields_by_name[body].message_type
        if message is None:
            return self._value(self.request.fields_by_name[body], 0).encode(), {body}
        fields = [variable.field for variable in self.rule.template.variables]
        in_path = {field[depth] for field in fields if len(field) > depth and (body == "*" or field[0] == body)}
        text = self._object(message, 0, without=in_path)
        texts = [name for name in in_path if _is_text(message.fields_by_name[name])]
        if texts and self.choice.wants_oddity(0.05):
            self.choice.oddity = "field of the path in the body"
            text = json.dumps({**json.loads(text), self.rng.choice(texts): "other"})
        return text.encode(), everything if body == "*" else {body}

    def _object(self, message: Descriptor, depth: int, without: set[str] = frozenset()) -> str:  # type: ignore[assignment]
        """JSON of a message with some fields."""
        possible = [one for one in message.fields if one.name not in without and not _is_any(one)]
        chosen = self.rng.sample(possible, min(len(possible), self.rng.randint(0, 4)))
        members: list[tuple[str, str]] = []
        oneofs: set[str] = set()
        for one in chosen:
            oneof = one.containing_oneof
            if oneof is not None and len(oneof.fields) > 1:
                if oneof.name in oneofs:
                    continue
                oneofs.add(oneof.name)
                if self.choice.wants_oddity(0.05):
                    self.choice.oddity = "two members of a oneof, in JSON"
                    other = self.rng.choice([member for member in oneof.fields if member is not one])
                    members.append((other.json_name, self._value(other, depth, nullable=False)))
            nullable = oneof is None or len(oneof.fields) == 1
            members.append((self._key(one), self._value(one, depth, nullable=nullable)))
        self._odd_member(members, message)
        return "{" + ", ".join(f"{json.dumps(key)}: {text}" for key, text in members) + "}"

    def _odd_member(self, members: list[tuple[str, str]], message: Descriptor) -> None:
        if self.choice.wants_oddity(0.05):
            self.choice.oddity = "unknown key"
            members.append(("nothingOfIt", self.rng.choice(["1", '{"a": [null]}', '"x"'])))
        elif members and self.choice.wants_oddity(0.03):
            self.choice.oddity = "key twice"
            members.append(self.rng.choice(members))
        elif members and self.choice.wants_oddity(0.03):
            key, text = self.rng.choice(members)
            found = [one for one in message.fields if key in (one.name, one.json_name)]
            if found and found[0].name != found[0].json_name:
                self.choice.oddity = "key in both spellings"
                members.append((found[0].name if key == found[0].json_name else found[0].json_name, text))
        elif members and self.choice.wants_oddity(0.02):
            self.choice.oddity = "key in other case"
            key, text = members.pop()
            members.append((key.upper(), text))

    def _key(self, one: FieldDescriptor) -> str:
        return one.name if self.rng.random() < 0.25 else one.json_name

    def _value(self, one: FieldDescriptor, depth: int, *, nullable: bool = True) -> str:
        if nullable and depth and self.rng.random() < 0.05:
            return "null"
        if _is_map(one):
            return self._map(one, depth)
        if not one.is_repeated:
            return self._single(one, depth)
        if self.choice.wants_oddity(0.08):
            self.choice.oddity = self.rng.choice(
                ["object in place of a list", "null in a list", "text in place of a list"]
            )
            return {"o": "{}", "n": "[null]", "t": '"a"'}[self.choice.oddity[0]]
        return "[" + ", ".join(self._single(one, depth) for _ in range(self.rng.randint(0, 3))) + "]"

    def _map(self, one: FieldDescriptor, depth: int) -> str:
        assert one.message_type is not None
        key, value = (one.message_type.fields_by_name[name] for name in ("key", "value"))
        if self.choice.wants_oddity(0.1):
            self.choice.oddity = self.rng.choice(["list in place of a map", "null in a map"])
            return "[]" if self.choice.oddity[0] == "l" else '{"1": null}'
        members = {}
        for _ in range(self.rng.randint(0, 2)):
            form = self.choice.form(key, as_text=True)
            assert form is not None
            members[form.text] = self._single(value, depth)
        return "{" + ", ".join(f"{json.dumps(key)}: {text}" for key, text in members.items()) + "}"

    def _single(self, one: FieldDescriptor, depth: int) -> str:
        message = one.message_type
        if message is None or is_wrapper(message) or message.full_name in FORMS:
            form = self.choice.form(one, as_text=False)
            assert form is not None
            return cast(str, form.json)
        if self.choice.wants_oddity(0.03):
            self.choice.oddity = self.rng.choice(["list in place of an object", "text in place of an object"])
            return "[]" if self.choice.oddity[0] == "l" else '"a"'
        if depth == _RECURSION or _is_any(one):
            return "{}"
        return self._object(message, depth + 1)

    # ---- the query

    def _query(self, bound: set[str], *, reads_body: bool) -> str:
        pairs: list[tuple[str, str]] = []
        if reads_body and self.rule.body == "*":
            if self.choice.wants_oddity(0.1):
                self.choice.oddity = "query beside a body that is the request"
                self._leaf_pairs(pairs, self.request, "", set(), 0)
        else:
            for _ in range(self.rng.randint(0, 3)):
                self._leaf_pairs(pairs, self.request, "", bound | {pair[0].split(".")[0] for pair in pairs}, 0)
        self._odd_pair(pairs, bound)
        if self.rule.http_method == "PATCH" and not any(name in ("updateMask", "update_mask") for name, _ in pairs):
            if self.choice.wants_oddity(0.3):
                self.choice.oddity = "PATCH without a mask"
            else:
                pairs.append(("updateMask", "text"))
        encode = quote
        if any(" " in text for _, text in pairs) and self.choice.wants_oddity(0.5):
            self.choice.oddity, encode = "blank as a plus in a query", quote_plus
        return "&".join(f"{quote(name, safe='.[]$')}={encode(text, safe='')}" for name, text in pairs)

    def _leaf_pairs(
        self, pairs: list[tuple[str, str]], message: Descriptor, prefix: str, without: set[str], depth: int
    ) -> None:
        """Adds one field, or a repeated one with several values."""
        used = {one for one in message.fields if {one.name, one.json_name} & without}
        oneofs = {one.containing_oneof.name for one in used if one.containing_oneof is not None}
        possible = [
            one
            for one in message.fields
            if one not in used
            and not _is_any(one)
            and not _is_map(one)
            and (one.containing_oneof is None or one.containing_oneof.name not in oneofs)
        ]
        if not possible:
            return
        one = self.rng.choice(possible)
        name = prefix + self._key(one)
        form = self.choice.form(one, as_text=True)
        if form is not None and not (one.is_repeated and one.message_type is not None):
            pairs.append((name, cast(str, form.text)))
            while one.is_repeated and self.rng.random() < 0.5:
                again = self.choice.form(one, as_text=True)
                assert again is not None
                pairs.append((name, cast(str, again.text)))
        elif one.message_type is not None and one.message_type.full_name not in FORMS:
            if one.is_repeated:
                if self.choice.wants_oddity(0.5):
                    self.choice.oddity = "list of messages in a query"
                    pairs.append((name, "{}"))
            elif depth < _RECURSION:
                self._leaf_pairs(pairs, one.message_type, f"{name}.", set(), depth + 1)

    def _odd_pair(self, pairs: list[tuple[str, str]], bound: set[str]) -> None:
        if not self.choice.wants_oddity(0.25):
            return
        fields = {one.name: one for one in self.request.fields}
        free = [one for name, one in fields.items() if name not in bound and one.json_name not in dict(pairs)]
        options: dict[str, list[tuple[str, str]]] = {
            "unknown parameter": [("nothingOfIt", "1")],
            "system parameter": [("$alt", "json")],
            "parameter without a name": [("", "a")],
            "name with an empty step": [("child..text", "a")],
        }
        for one in free:
            is_text, kind = _is_text(one), one.message_type
            if is_text and not one.is_repeated and one.containing_oneof is None:
                options["one field twice, equal"] = [(one.name, "a"), (one.name, "a")]
                options["one field twice, different"] = [(one.name, "a"), (one.name, "b")]
                options["unknown field of a text"] = [(f"{one.name}.more", "a")]
                options["key in other case, in a query"] = [(one.name.upper(), "a")]
                if one.name != one.json_name:
                    options["one field in both spellings"] = [(one.name, "a"), (one.json_name, "b")]
            if kind is None and not is_text and one.type != FieldDescriptor.TYPE_BYTES:
                options["empty value of a number, boolean or enum"] = [(one.name, "")]
            if one.is_repeated and is_text:
                options["list with an index"] = [(f"{one.name}[0]", "a")]
                options["list separated by commas"] = [(one.name, "a,b")]
            if _is_map(one):
                options["map in a query"] = [(f"{one.name}[1]", "1")]
                options["map in a query, with a dot"] = [(f"{one.name}.1", "1")]
            elif kind is not None and not one.is_repeated and not is_wrapper(kind) and kind.full_name not in FORMS:
                options["message in a query"] = [(one.name, "a")]
                options["unknown field of a message, in a query"] = [(f"{one.name}.nothing", "a")]
            elif kind is not None and kind.full_name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
                options["empty time or duration in a query"] = [(one.name, "")]
            oneof = one.containing_oneof
            if (
                oneof is not None
                and len([member for member in oneof.fields if _is_text(member)])
                and len(oneof.fields) > 1
            ):
                other = next(member for member in oneof.fields if member is not one)
                if not pairs and other.message_type is None and one.message_type is None:
                    options["two members of a oneof, in a query"] = [(one.name, "1"), (other.name, "1")]
        for variable in self.rule.template.variables:
            if len(variable.field) == 1 and _is_text(fields[variable.field[0]]):
                options["field of the path in the query"] = [(variable.field[0], "other")]
        if self.rule.body not in ("", "*") and (one := fields[self.rule.body]).message_type is not None:
            for inner in one.message_type.fields:
                if _is_text(inner) and not one.is_repeated and inner.containing_oneof is None and not inner.is_repeated:
                    options["field of the body in the query"] = [(f"{one.name}.{inner.name}", "other")]
        self.choice.oddity = self.rng.choice(list(options))
        pairs += options[self.choice.oddity]


def _leaf(message: Descriptor, path: tuple[str, ...]) -> FieldDescriptor:
    *before, last = path
    for name in before:
        inner = message.fields_by_name[name].message_type
        assert inner is not None
        message = inner
    return message.fields_by_name[last]


def _is_text(one: FieldDescriptor) -> bool:
    return bool(one.type == FieldDescriptor.TYPE_STRING)


def _is_map(one: FieldDescriptor) -> bool:
    return one.message_type is not None and one.message_type.GetOptions().map_entry


def _is_any(one: FieldDescriptor) -> bool:
    return one.message_type is not None and one.message_type.full_name == "google.protobuf.Any"
