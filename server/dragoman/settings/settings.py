"""The settings of a server: one frozen object, parsed and validated once, and passed whole.

Precedence: command line, `DRAGOMAN_*` environment variables, TOML file (`--config`, else `dragoman.toml` in the
working directory, if present), default. Nothing else reads the environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from dragoman.core.limits.quotas import DEFAULT_LIMITS, Quotas
from dragoman.core.net.targets import names_this_machine
from dragoman.settings import groups as own
from dragoman.settings.extensions import (
    extension_groups,
    flatten_tables,
    groups_by_extension,
    is_recognized,
    used_sources,
)
from dragoman.settings.groups import DEFAULT_APP, DEFAULT_RESPONSE_BYTES, Group
from dragoman.settings.options import InvalidGroups, broken_rule, fields_by_option, read_groups, take_values
from dragoman.settings.sources import (
    SettingsError,
    explain_setting_error,
    read_config_file,
    read_environment,
    read_secret_files,
    reject_unknown_variables,
)
from dragoman.settings.types import Address

__all__ = ["DEFAULT_APP", "DEFAULT_RESPONSE_BYTES", "Address", "Settings", "SettingsError", "load_settings"]

MIN_TOKEN_LENGTH: Final = 16  # minimum length of the token of a server that other machines can reach
_AUTH_OPTIONS: Final = "--api-keys, --issuers, --tls-client-ca, --token"
_ALLOW: Final = f"turn on authentication ({_AUTH_OPTIONS}), or allow it with --insecure (DRAGOMAN_INSECURE=true)"


class Settings(BaseModel):
    """All settings: those given, else of the environment, else of the TOML file, else the default.

    They are given by the names of their options: `Settings(http=..., push_give_up="2h")`. Raises InvalidGroups;
    `load_settings` raises a readable SettingsError instead.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    listen: own.ListenSettings
    agents: own.AgentSettings
    process: own.ProcessSettings
    tracing: own.TracingSettings
    store: own.StoreSettings
    cluster: own.ClusterSettings
    access: own.AccessSettings
    tls: own.TlsSettings
    public: own.PublicSettings
    outbound: own.OutboundSettings
    limits: own.LimitSettings
    protocol: own.ProtocolSettings
    retention: own.RetentionSettings
    push: own.PushSettings
    extensions: Mapping[str, Any]  # the settings of each installed extension, by its name; None without settings

    def __init__(self, **given: Any) -> None:
        secrets = secret_options()
        given = read_secret_files(given, secrets, lambda name: f"--{name.replace('_', '-')} (command line)")
        values = {**settings_environment(), **given}
        file, in_file = read_config_file(values.get("config"))
        in_file = read_secret_files(flatten_tables(in_file), secrets, lambda name: f"{name.replace('_', '-')} ({file})")
        values = {**in_file, **({"config": file} if file else {}), **values}
        groups = read_groups(own_groups() | extension_groups(), values)
        of_server = {name: groups[name] for name in own_groups()}
        super().__init__(**of_server, extensions=groups_by_extension(groups))
        if broken := list(check_authentication(self)):
            raise InvalidGroups(broken)

    def replaced(self, **options: Any) -> Self:
        """A copy with other values, by the names of options. They are not checked."""
        groups = {name: values for name, values in take_values(own_groups(), options).items() if values}
        assert not options, f"not of a group of ours: {options}"
        return self.model_copy(
            update={name: getattr(self, name).model_copy(update=values) for name, values in groups.items()}
        )

    @property
    def own_app(self) -> str:
        """APP; empty with `workers_only`, with agents of other kinds unless APP was given, and if it is an object."""
        app = self.agents.app
        if is_recognized(app):
            return ""
        has_other_agents = self.agents.upstream or used_sources(self.extensions, app)
        if self.agents.workers_only or (has_other_agents and "app" not in self.agents.model_fields_set):
            return ""
        return app

    @property
    def sends_push(self) -> bool:
        """Whether this process delivers push notifications; worker processes do not."""
        return self.push.enabled and self.cluster.role != "worker"

    @property
    def requires_auth(self) -> bool:
        access = self.access
        return bool(access.token.get_secret_value() or access.api_keys or access.issuers or self.tls.client_ca)

    @property
    def behind_proxy(self) -> bool:
        """Whether other machines call through a proxy: one is trusted, or the public name is not of this machine."""
        return bool(self.public.trusted_proxies) or is_public(self.public.url) or is_public(self.public.grpc)

    @property
    def is_private(self) -> bool:
        """Whether only users of this machine call: no other machine reaches the server, and no proxy calls for one.

        Whoever turns on authentication expects other callers, mostly through a proxy on the same machine.
        """
        return self.listen.is_loopback and not (self.requires_auth or self.behind_proxy)

    @property
    def shows_error_texts(self) -> bool:
        """Whether callers see what any exception of an agent says."""
        return self.access.error_texts == "all" or (self.access.error_texts == "auto" and self.is_private)

    @property
    def quotas(self) -> Quotas:
        limits = {limit: int(value) for limit in DEFAULT_LIMITS if (value := getattr(self.access, limit)) is not None}
        return Quotas(limits, self.access.agent_limits, not self.listen.is_loopback or self.behind_proxy)


class HostSettings(Settings):
    """Settings of a server whose host application knows the callers of HTTP."""

    @property
    def requires_auth(self) -> bool:
        return True


def is_public(address: str) -> bool:
    """Whether the URL or address, which may be empty, is of another machine than this."""
    return bool(address) and not names_this_machine(address.rpartition("://")[2].partition("/")[0])


def check_authentication(settings: Settings) -> Iterator[ErrorDetails]:
    """The settings that mean nothing without authentication, and those that would leave the server open."""
    access, public, listen = settings.access, settings.public, settings.listen
    with_auth = settings.requires_auth
    for option, value in (("public_agents", access.public_agents), ("private_pages", access.private_pages)):
        if value and not with_auth:
            yield broken_rule(option, "needs authentication; add --api-keys, --issuers, --tls-client-ca or --token")
    if listen.insecure or settings.cluster.role == "worker":
        return  # a worker's ports only serve health
    token = access.token.get_secret_value()
    for option, address in (("http", listen.http), ("grpc", listen.grpc)):
        if address.is_loopback:
            continue
        if not with_auth:
            yield broken_rule(
                option,
                f'"{address}" can be reached from other machines, and authentication is off; use 127.0.0.1, [::1] or '
                f"localhost, or {_ALLOW}",
            )
        elif 0 < len(token) < MIN_TOKEN_LENGTH:
            yield broken_rule(
                option,
                f'"{address}" can be reached from other machines, which could guess the token; it must have at least '
                f"{MIN_TOKEN_LENGTH} characters",
            )
    signs = {
        "public_url": is_public(public.url),
        "public_grpc": is_public(public.grpc),
        "trusted_proxies": bool(public.trusted_proxies),
    }
    for option in (option for option, is_sign in signs.items() if is_sign and not with_auth):
        yield broken_rule(
            option,
            "other machines call through a proxy, and authentication is off, so that everyone who reaches the proxy "
            f"could call; {_ALLOW}",
        )


def own_groups() -> dict[str, type[Group]]:
    """The groups of a server's settings, without those of extensions, by name."""
    kinds = {name: field.annotation for name, field in Settings.model_fields.items()}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Group)}


def setting_fields() -> dict[str, FieldInfo]:
    """The field of each setting by the name of its option, with those of extensions. Raises SettingsError."""
    groups = (own_groups() | extension_groups()).values()
    return {name: field for name, (_, field) in fields_by_option(groups).items()}


def secret_options() -> frozenset[str]:
    """The names of options whose values may hold secrets. Raises SettingsError."""
    options = fields_by_option((own_groups() | extension_groups()).values()).values()
    return frozenset(
        option.name for option, field in options if option.may_hold_secrets or isinstance(field.default, SecretStr)
    )


def settings_environment() -> dict[str, str]:
    """The environment's values of all settings, by the names of options. Raises SettingsError."""
    return read_environment(setting_fields(), secret_options())


def load_settings(arguments: Mapping[str, Any], *, in_code: bool = False, kind: type[Settings] = Settings) -> Settings:
    """Settings from command line arguments (None: not given) and the other sources.

    in_code: the arguments are those of a function, and errors spell them so. kind: whose rules apply. Raises
    SettingsError.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    reject_unknown_variables(setting_fields(), secret_options())
    try:
        return kind(**given)
    except InvalidGroups as error:
        config = read_config_file({**settings_environment(), **given}.get("config"))
        raise SettingsError(_explain(error, given, *config, in_code=in_code)) from error


def load_worker_settings(arguments: Mapping[str, Any]) -> Settings:
    """A worker's settings from options (None: not given), their environment, and defaults. Raises SettingsError."""
    given = {name: value for name, value in arguments.items() if value not in (None, [])}
    try:
        groups = read_groups(
            own_groups() | extension_groups(),
            {**read_environment(arguments, secret_options() & set(arguments)), **given},
        )
    except InvalidGroups as error:
        raise SettingsError(_explain(error, given)) from error
    values: dict[str, Any] = {name: groups[name] for name in own_groups()}
    return Settings.model_construct(**values, extensions=groups_by_extension(groups))


def _explain(error: InvalidGroups, given: Mapping[str, Any], *config: Any, in_code: bool = False) -> str:
    """One line for each invalid setting. `config`: the TOML file, if there is one, and its values."""
    fields = setting_fields()
    return "\n".join(explain_setting_error(fields, item, given, *config, in_code=in_code) for item in error.errors)
