"""Arguments of `@agent` about callers: extensions, security and extended skills."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman import Extension, Skill, Turn, agent
from dragoman.agents.functions.spec import Retry
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.wire.cards import agent_card

CITE = "https://ext.example/cite/v1"
BEARER = {"type": "http", "scheme": "bearer"}
TOKEN_URL = {"tokenUrl": "https://id.example/token"}


async def echo(turn: Turn) -> str:
    return turn.text


def spec(**arguments: Any) -> AgentSpec:
    return agent(**arguments)(echo).spec


# Accepted -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (CITE, Extension(uri=CITE)),
        ({"uri": CITE}, Extension(uri=CITE)),
        ({"uri": CITE, "required": True}, Extension(uri=CITE, required=True)),
        (
            {"uri": CITE, "description": "Cites", "params": {"depth": 3, "of": [None, "a"]}},
            Extension(uri=CITE, description="Cites", params={"depth": 3, "of": [None, "a"]}),
        ),
        (Extension(uri=CITE, required=True, params={"a": 1}), Extension(uri=CITE, required=True, params={"a": 1})),
        ("urn:example:cite", Extension(uri="urn:example:cite")),
    ],
)
def test_an_extension_is_given_as_uri_dict_or_extension(given: Any, expected: Extension) -> None:
    assert spec(extensions=[given]).extensions == (expected,)
    assert spec(extensions=iter([given])).extensions == (expected,)


def test_extension_params_are_copied_as_json() -> None:
    params: dict[str, Any] = {"pair": (1, 2), "inner": {"a": 1}}
    agent_spec = spec(extensions=[{"uri": CITE, "params": params}])
    params["inner"]["a"] = 2
    assert agent_spec.extensions[0].params == {"pair": [1, 2], "inner": {"a": 1}}


SCHEMES: list[dict[str, Any]] = [
    BEARER,
    {"type": "http", "scheme": "basic", "description": "Name and password"},
    {**BEARER, "bearerFormat": "JWT"},
    *({"type": "apiKey", "in": place, "name": "X-Key"} for place in ("header", "query", "cookie")),
    {"type": "openIdConnect", "openIdConnectUrl": "https://id.example/.well-known/openid-configuration"},
    {"type": "mutualTLS"},
    {
        "type": "oauth2",
        "oauth2MetadataUrl": "https://id.example/.well-known/oauth-authorization-server",
        "flows": {
            "authorizationCode": {
                **TOKEN_URL,
                "authorizationUrl": "https://id.example/authorize",
                "refreshUrl": "https://id.example/refresh",
                "scopes": {"read": "May read", "write": ""},
                "pkceRequired": True,
            },
            "clientCredentials": {**TOKEN_URL, "scopes": {}},
            "implicit": {"authorizationUrl": "https://id.example/authorize", "scopes": {}},
            "password": {**TOKEN_URL, "scopes": {}},
            "deviceCode": {**TOKEN_URL, "deviceAuthorizationUrl": "https://id.example/device", "scopes": {}},
        },
    },
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: "-".join(map(str, scheme.values()))[:40])
def test_each_accepted_security_scheme_fits_every_card(scheme: dict[str, Any]) -> None:
    agent_spec = spec(security_schemes={"it": scheme}, security=[{"it": []}])
    assert agent_spec.security_schemes == {"it": scheme}
    assert agent_spec.security == ({"it": ()},)
    at = agent_card.CardView(http="http://x", is_root=True)
    for document in (
        agent_card.v1_document,
        agent_card.v03_document,
        agent_card.v01_document,
        agent_card.combined_document,
        agent_card.legacy_document,
    ):
        assert json.loads(document(agent_spec, at))["name"] == "Echo"
    shown = scheme | ({"in_": scheme["in"]} if "in" in scheme else {})
    assert json.loads(agent_card.v03_document(agent_spec, at))["securitySchemes"] == {"it": shown}


@pytest.mark.parametrize("flow", list(SCHEMES[-1]["flows"]))
def test_each_oauth_flow_fits_a_card_alone(flow: str) -> None:
    flows = {flow: SCHEMES[-1]["flows"][flow]}
    agent_spec = spec(security_schemes={"it": {"type": "oauth2", "flows": flows}})
    at = agent_card.CardView(http="http://x", is_root=True)
    shown = json.loads(agent_card.v1_document(agent_spec, at))["securitySchemes"]["it"]["oauth2SecurityScheme"]
    assert shown == {"flows": flows}


def test_security_requirements_are_alternatives() -> None:
    schemes = {"bearer": BEARER, "tls": {"type": "mutualTLS"}}
    agent_spec = spec(security_schemes=schemes, security=[{"bearer": ["read", "write"], "tls": []}, {"tls": ()}, {}])
    assert agent_spec.security == ({"bearer": ("read", "write"), "tls": ()}, {"tls": ()}, {})


def test_extended_skills_have_the_same_forms_as_skills() -> None:
    whisper = Skill(id="whisper", name="Whisper", description="Quietly")
    agent_spec = spec(skills=["Talk"], extended_skills=[whisper, {"name": "Shout", "tags": ["loud"]}, "Hum"])
    assert [skill.id for skill in agent_spec.skills] == ["talk"]
    assert agent_spec.extended_skills == (
        whisper,
        Skill(id="shout", name="Shout", description="Shout", tags=("loud",)),
        Skill(id="hum", name="Hum", description="Hum"),
    )


def test_the_defaults_are_empty() -> None:
    agent_spec = spec()
    assert (agent_spec.extensions, agent_spec.security, agent_spec.extended_skills) == ((), (), ())
    assert agent_spec.security_schemes == {}


# Rejected --------------------------------------------------------------------------------------------------


def oauth(flows: Any) -> dict[str, Any]:
    return {"security_schemes": {"o": {"type": "oauth2", "flows": flows}}}


def secured(*needed: Any) -> dict[str, Any]:
    return {"security_schemes": {"bearer": BEARER}, "security": needed}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"extensions": CITE}, f"extensions='{CITE}' must be a list of Extension, dict or str"),
    ({"extensions": {"uri": CITE}}, "must be a list of Extension, dict or str"),
    ({"extensions": None}, "extensions=None must be a list"),
    ({"extensions": [7]}, "extensions[0]=7 must be an Extension or a dict"),
    ({"extensions": [{}]}, "extensions[0].uri=None must be a string"),
    ({"extensions": [""]}, "extensions[0].uri is empty"),
    ({"extensions": [CITE, {"url": CITE}]}, "extensions[1] has no field url; known fields: uri, description, required"),
    ({"extensions": [CITE, {"uri": CITE}]}, f'extensions[1] has the uri "{CITE}" of an earlier extension'),
    ({"extensions": ["a,b"]}, 'extensions[0].uri: "a,b" cannot be sent in a header'),
    ({"extensions": ["a b"]}, "cannot be sent in a header"),
    ({"extensions": ["https://ext.example/ü"]}, "cannot be sent in a header"),
    ({"extensions": [{"uri": CITE, "required": "yes"}]}, "extensions[0].required='yes' must be True or False"),
    ({"extensions": [{"uri": CITE, "params": [1]}]}, "extensions[0].params=[1] must be a dict"),
    ({"extensions": [{"uri": CITE, "params": {"a": {1}}}]}, "extensions[0].params is not JSON"),
    ({"extensions": [{"uri": CITE, "params": {"a": float("nan")}}]}, "extensions[0].params is not JSON"),
    ({"extensions": [{"uri": CITE, "description": None}]}, "extensions[0].description=None must be a string"),
    ({"security_schemes": [BEARER]}, "must be a dict of schemes by name"),
    ({"security_schemes": {1: BEARER}}, "a key of security_schemes=1 must be a string"),
    ({"security_schemes": {"": BEARER}}, "a key of security_schemes is empty"),
    ({"security_schemes": {"b": "bearer"}}, "security_schemes['b']='bearer' must be a dict"),
    ({"security_schemes": {"b": {}}}, "security_schemes['b'].type is None; use one of apiKey, http, oauth2"),
    ({"security_schemes": {"b": {"type": "bearer"}}}, "security_schemes['b'].type is 'bearer'; use one of"),
    ({"security_schemes": {"b": {"type": ["http"]}}}, "security_schemes['b'].type is ['http']; use one of"),
    ({"security_schemes": {"b": {"type": "http"}}}, "security_schemes['b'] needs scheme"),
    ({"security_schemes": {"b": {"type": "apiKey", "in": "header"}}}, "security_schemes['b'] needs name"),
    ({"security_schemes": {"b": {"type": "apiKey"}}}, "security_schemes['b'] needs in, name"),
    ({"security_schemes": {"b": {"type": "apiKey", "in": "body", "name": "k"}}}, ".in is 'body'; use one of header,"),
    ({"security_schemes": {"b": {"type": "openIdConnect"}}}, "security_schemes['b'] needs openIdConnectUrl"),
    ({"security_schemes": {"b": {"type": "http", "scheme": 5}}}, "security_schemes['b'].scheme=5 must be a string"),
    ({"security_schemes": {"b": {**BEARER, "bearer_format": "JWT"}}}, "has no field bearer_format; known fields: sch"),
    ({"security_schemes": {"b": {**BEARER, "description": 1}}}, "security_schemes['b'].description=1 must be a string"),
    ({"security_schemes": {"o": {"type": "oauth2"}}}, "security_schemes['o'] needs flows"),
    (oauth("code"), "security_schemes['o'].flows='code' must be a dict of flows by name"),
    (oauth({"code": {}}), "security_schemes['o'].flows has no flow code; known flows: authorizationCode"),
    (oauth({"password": "x"}), "security_schemes['o'].flows.password='x' must be a dict"),
    (oauth({"password": {}}), "security_schemes['o'].flows.password needs tokenUrl"),
    (oauth({"password": {"tokenUrl": 5}}), "security_schemes['o'].flows.password.tokenUrl=5 must be a string"),
    (oauth({"password": {**TOKEN_URL, "url": "x"}}), "flows.password has no field url; known fields: tokenUrl"),
    (oauth({"password": {**TOKEN_URL, "scopes": ["read"]}}), "scopes=['read'] must be a dict of descriptions by scope"),
    (oauth({"password": {**TOKEN_URL, "scopes": {"read": 1}}}), "scopes['read']=1 must be a string"),
    (oauth({"password": {**TOKEN_URL, "scopes": {1: "x"}}}), "scopes=1 must be a string"),
    (oauth({"authorizationCode": {**TOKEN_URL, "authorizationUrl": "https://a", "pkceRequired": "yes"}}),
     "pkceRequired='yes' must be True or False"),
    ({"security": [{"bearer": []}]}, "security[0] names bearer; security_schemes has no such scheme"),
    (secured({"bearer": []}, {"basic": []}), "security[1] names basic; security_schemes has no such scheme"),
    (secured("bearer"), "security[0]='bearer' must be a dict of scopes by scheme"),
    (secured({"bearer": "read"}), "security[0]['bearer']='read' must be a list of strings"),
    (secured({"bearer": None}), "security[0]['bearer']=None must be a list of strings"),
    (secured({"bearer": [1]}), "security[0]['bearer']=1 must be a string"),
    ({"security_schemes": {"bearer": BEARER}, "security": {"bearer": []}}, "must be a list of dicts"),
    ({"security": None}, "security=None must be a list of dicts"),
    ({"security": "bearer"}, "security='bearer' must be a list of dicts"),
    ({"extended_skills": "Talk"}, "extended_skills='Talk' must be a list of Skill, dict or str"),
    ({"extended_skills": [7]}, "extended_skills[0]=7 must be a Skill or a dict"),
    ({"extended_skills": ["Hum", "hum"]}, 'extended_skills[1] has the id "hum" of an earlier skill'),
    ({"skills": ["Talk"], "extended_skills": ["talk"]}, 'extended_skills[0] has the id "talk" of an earlier skill'),
    ({"extended_skills": [{"name": "x", "tags": 1}]}, "extended_skills[0].tags=1 must be a list of strings"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "reason"), WRONG, ids=[reason for _, reason in WRONG])
def test_an_invalid_argument_is_named_in_the_error(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        spec(**arguments)
    assert str(caught.value).startswith("@agent: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [({"attempts": 0}, "attempts=0 must be 1 to 1000"), ({"backoff": -1}, "backoff=-1 must be seconds, 0 or more")],
)
def test_a_retry_is_checked(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Retry(**options)


def test_the_delay_of_a_retry_doubles_up_to_its_limit() -> None:
    assert [Retry(backoff=1, max_backoff=3).delay(failures) for failures in (1, 2, 3, 9)] == [1, 2, 3, 3]
