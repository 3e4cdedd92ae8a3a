"""Sources of settings: precedence, the file, and how invalid ones are explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.cli import COMMANDS, load_command
from dragoman.settings.extensions import extension_options, installed_extensions
from dragoman.settings.options import options_of
from dragoman.settings.settings import (
    Settings,
    SettingsError,
    load_settings,
    own_groups,
    secret_options,
    setting_fields,
)
from dragoman.settings.sources import (
    COMMAND_LINE_ONLY,
    DEFAULT_CONFIG_FILE,
    file_setting,
    read_config_file,
    read_environment,
)


def test_command_line_precedes_environment_precedes_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("dragoman.toml").write_text('slots = 1\ndrain = 1\nblocking-wait = 1\nlog_format = "json"\n')
    monkeypatch.setenv("DRAGOMAN_SLOTS", "2")
    monkeypatch.setenv("DRAGOMAN_DRAIN", "2")
    settings = load_settings({"slots": "3", "http": None})
    assert (
        settings.limits.slots,
        settings.limits.drain,
        settings.limits.blocking_wait,
        settings.process.log_format,
    ) == (3, 2, 1, "json")


def test_the_config_file_is_set_by_argument_or_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.toml").write_text("slots = 7")
    Path("b.toml").write_text("slots = 8")
    monkeypatch.setenv("DRAGOMAN_CONFIG", "a.toml")
    assert load_settings({}).limits.slots == 7
    assert load_settings({"config": Path("b.toml")}).limits.slots == 8
    assert load_settings({}).process.config == Path("a.toml")


def value_of(settings: Settings, name: str) -> Any:
    """The value of an option, which may be one of an extension."""
    groups = [(getattr(settings, name), options_of(group)) for name, group in own_groups().items()]
    groups += [(settings.extensions[one.name], extension_options(one)) for one in installed_extensions()]
    values = {option.name: getattr(group, field) for group, own in groups for field, (option, _) in own.items()}
    return values[name]


@pytest.mark.parametrize("name", sorted(set(setting_fields()) - {"config"}))
def test_every_setting_can_come_from_environment_or_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"http": "127.0.0.1:1", "grpc": "[::1]:2", "public_url": "http://a.example", "public_grpc": "a.example:3"}
    values |= {"trusted_proxies": "10.0.0.0/8", "store": "sqlite:///other.db", "app": "a.py", "root": "a"}
    values |= {"log_format": "json", "sqlite_synchronous": "normal", "error_table": "1.0.0", "v03_files": "base64"}
    values |= {"trace_url": "http://b.example/{task_id}"}
    values |= {"retention": "completed=30d", "outbound_allow": "10.0.0.0/8", "outbound_ca": "ca.pem"}
    values |= {
        "metrics": "127.0.0.1:4",
        "role": "worker",
        "audit": "security",
        "processes": "4",
        "isolation": "scope",
        "blocking_default": "return",
        "card_versions": "1.0",
        "push": "false",
        "mcp_endpoint": "false",
        "agent_limits": "a.live-tasks=5",
    }
    values |= {
        "otlp": "http://a.example:4318",
        "otlp_headers": "a=b",
        "trace_share": "0.5",
        "budgets": "cost=5",
    }
    values |= {"retention": "completed=30d", "issuers": "https://a.example audience=me", "public_agents": "a,b"}
    values |= {"executor": "a.b:C", "executor_env": "KEY", "executor_retries": "3", "upstream": "https://a.example/b"}
    values |= {
        "tls_client_grants": "a=operator",
        "tls_client_principal": "uri",
        "error_texts": "all",
        "log_level": "debug",
    }
    if name in ("public_url", "public_grpc", "trusted_proxies", "sign_cards"):
        monkeypatch.setenv("DRAGOMAN_INSECURE", "true")
    if name == "sign_cards":
        monkeypatch.setenv("DRAGOMAN_PUBLIC_URL", "https://a.example")
    if name in ("public_agents", "private_pages"):
        monkeypatch.setenv("DRAGOMAN_API_KEYS", "true")
    value = values.get(name, "true" if setting_fields()[name].annotation is bool else "4095")
    monkeypatch.setenv(f"DRAGOMAN_{name.upper()}", value)
    response_value = value_of(load_settings({}), name)
    assert response_value != setting_fields()[name].default
    monkeypatch.delenv(f"DRAGOMAN_{name.upper()}")
    Path("dragoman.toml").write_text(f"{name} = '{value}'")
    assert value_of(load_settings({}), name) == response_value


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_SLOTS", "")
    assert load_settings({}).limits.slots == setting_fields()["slots"].default


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("DRAGOMAN_API_KEY", "did you mean DRAGOMAN_API_KEYS?"),
        ("dragoman_log_fromat", "did you mean DRAGOMAN_LOG_FORMAT?"),
        ("DRAGOMAN_QQ_77", "remove it; `dragoman serve --help-all` lists them"),
    ],
)
def test_an_unknown_variable_is_rejected_with_the_nearest_name(
    variable: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "true")
    with pytest.raises(SettingsError) as failure:
        load_settings({})
    assert str(failure.value) == f"{variable} (environment): is not a setting; {hint}"


def test_unset_variables_and_those_of_kubernetes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_XYZZY", "")
    for name in ("SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT", "PORT_8080_TCP_ADDR", "SERVER_SERVICE_HOST"):
        monkeypatch.setenv(f"DRAGOMAN_{name}", "10.0.0.1")
    load_settings({})


def test_variables_of_every_command_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def variables(command: Any) -> set[str]:
        own = {str(one.envvar) for one in command.params if one.envvar}
        return own.union(*map(variables, getattr(command, "commands", {}).values()))

    names = set().union(*(variables(load_command(name)) for name in COMMANDS))
    assert {"DRAGOMAN_SERVER", "DRAGOMAN_KEY", "DRAGOMAN_CA"} <= names
    for name in names:
        monkeypatch.setenv(name, "")
    for name in names - {f"DRAGOMAN_{field.upper()}" for field in setting_fields()}:
        monkeypatch.setenv(name, "x")
    load_settings({})


def test_an_invalid_variable_is_reported_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_DRAIN", "soon")
    with pytest.raises(SettingsError, match=r'^DRAGOMAN_DRAIN \(environment\): "soon" '):
        load_settings({})


def test_an_invalid_line_of_the_file_is_reported_with_the_file() -> None:
    Path("dragoman.toml").write_text('error_table = "0.9"\nblue = "red"\n')
    with pytest.raises(SettingsError) as caught:
        load_settings({})
    first, second = sorted(str(caught.value).splitlines())
    assert first == "blue (dragoman.toml): is not a setting; remove it; `dragoman serve --help-all` lists them"
    assert second == "error-table (dragoman.toml): \"0.9\" must be '1.0.1' or '1.0.0'"


def test_an_unknown_name_in_the_file_is_rejected_with_the_nearest_name() -> None:
    Path("dragoman.toml").write_text("slotz = 3\n")
    with pytest.raises(SettingsError, match=r"^slotz \(dragoman\.toml\): is not a setting; did you mean slots\?$"):
        load_settings({})


def test_an_option_of_the_command_line_only_is_named_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {one.name for one in load_command("serve").params if one.name not in setting_fields()}
    files = {*map(file_setting, secret_options())}
    assert {*COMMAND_LINE_ONLY} == options - {"supervised", "reloading", "help", "help_all"} - files
    Path("dragoman.toml").write_text("reload = true\n")
    with pytest.raises(SettingsError, match=r"^reload \(dragoman\.toml\): exists on the command line only: --reload$"):
        load_settings({})
    monkeypatch.setenv("DRAGOMAN_RELOAD", "1")
    rule = r"^DRAGOMAN_RELOAD \(environment\): exists on the command line only: --reload$"
    with pytest.raises(SettingsError, match=rule):
        load_settings({})


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("http = 8080", '"8080" is not HOST:PORT; for example 127.0.0.1:8080 or [::1]:8080'),
        ("metrics = true", '"True" is not HOST:PORT; for example 127.0.0.1:8080 or [::1]:8080'),
        ("slots = 2.5", '"2.5" is not an integer'),
        ("drain = 'soon'", '"soon" is not a number'),
        ("push = 'perhaps'", '"perhaps" must be true or false'),
        (
            "stored_bytes = '10XB'",
            '"10XB" has no known unit; use B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 16MiB',
        ),
        ("message_bytes = 'big'", '"big" is not a size, such as 16MiB'),
    ],
)
def test_a_value_of_another_type_is_rejected_with_the_type(line: str, rule: str) -> None:
    Path("dragoman.toml").write_text(line)
    with pytest.raises(SettingsError) as caught:
        load_settings({})
    assert str(caught.value) == f"{line.partition(' ')[0].replace('_', '-')} (dragoman.toml): {rule}"


def test_invalid_toml_is_reported_with_its_position() -> None:
    Path("dragoman.toml").write_text("slots = \n")
    with pytest.raises(SettingsError, match=r"^dragoman.toml: is not valid TOML: .*line 1"):
        load_settings({})


def test_all_invalid_settings_are_reported_together() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"http": "x", "grpc": "y", "slots": "z"})
    assert len(str(caught.value).splitlines()) == 3


def test_errors_do_not_contain_the_token() -> None:
    Path("dragoman.toml").write_text("token = 20261120\n")
    with pytest.raises(SettingsError, match=r"^token \(dragoman.toml\): must be a text$"):
        load_settings({})


def test_names_of_variables_ignore_case_and_other_prefixes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOT_DRAGOMAN_SLOTS", "9")
    assert read_environment(["slots"]) == {}
    monkeypatch.setenv("dragoman_slots", "5")
    assert read_environment(["slots"]) == {"slots": "5"}
    assert read_environment(["slot"]) == {}


def test_without_a_file_there_are_no_values_unless_one_was_named() -> None:
    assert read_config_file(None) == (None, {})
    with pytest.raises(SettingsError, match=r"^--config: file other.toml does not exist$"):
        read_config_file(Path("other.toml"))


def test_keys_of_the_file_may_have_hyphens() -> None:
    DEFAULT_CONFIG_FILE.write_text('log-format = "json"\nlive_tasks = 3\n[agent-limits.my-agent]\nlive-tasks = 1\n')
    file, values = read_config_file(None)
    assert file == DEFAULT_CONFIG_FILE
    # The keys of tables are names that someone chose.
    assert values == {"log_format": "json", "live_tasks": 3, "agent_limits": {"my-agent": {"live-tasks": 1}}}


def test_a_file_that_cannot_be_read_is_reported() -> None:
    DEFAULT_CONFIG_FILE.mkdir()
    with pytest.raises(SettingsError, match=r"^dragoman.toml: cannot be read: .*directory"):
        read_config_file(None)
    DEFAULT_CONFIG_FILE.rmdir()
    DEFAULT_CONFIG_FILE.write_bytes(b'app = "caf\xe9"\n')
    with pytest.raises(SettingsError, match=r"^dragoman.toml: cannot be read: .*utf-8"):
        read_config_file(None)


def test_an_error_names_the_source_that_won(monkeypatch: pytest.MonkeyPatch) -> None:
    DEFAULT_CONFIG_FILE.write_text('slots = "few"\n')
    with pytest.raises(SettingsError, match=r'^slots \(dragoman.toml\): "few" is not an integer$'):
        load_settings({})
    monkeypatch.setenv("DRAGOMAN_SLOTS", "some")
    with pytest.raises(SettingsError, match=r'^DRAGOMAN_SLOTS \(environment\): "some" is not an integer$'):
        load_settings({})
    with pytest.raises(SettingsError, match=r'^--slots \(command line\): "many" is not an integer$'):
        load_settings({"slots": "many"})


def test_an_unknown_name_in_code_is_reported_without_a_file() -> None:
    with pytest.raises(SettingsError, match=r"^blue \(argument\): is not a setting; remove it"):
        load_settings({"blue": "red"})


def test_a_secret_may_be_in_a_file_that_a_variable_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a-long-token\n")
    monkeypatch.setenv("DRAGOMAN_TOKEN_FILE", str(secret))
    assert load_settings({}).access.token.get_secret_value() == "a-long-token"
    assert load_settings({"token": "another"}).access.token.get_secret_value() == "another"
    secret.write_text("sqlite:///there.db")
    monkeypatch.setenv("DRAGOMAN_STORE_FILE", str(secret))
    assert load_settings({}).store.url == "sqlite:///there.db"
    monkeypatch.setenv("DRAGOMAN_TOKEN", "twice")
    with pytest.raises(SettingsError, match=r"^DRAGOMAN_TOKEN_FILE .*: DRAGOMAN_TOKEN is set, too; remove one$"):
        load_settings({})
    monkeypatch.delenv("DRAGOMAN_TOKEN")
    (empty := tmp_path / "empty").write_text(" \n")
    monkeypatch.setenv("DRAGOMAN_TOKEN_FILE", str(empty))
    with pytest.raises(SettingsError, match=r"^DRAGOMAN_TOKEN_FILE \(environment\): .* is empty; write the value"):
        load_settings({})
    monkeypatch.setenv("DRAGOMAN_TOKEN_FILE", str(tmp_path / "absent"))
    with pytest.raises(
        SettingsError, match=r"^DRAGOMAN_TOKEN_FILE \(environment\): .*absent cannot be read: .*No such"
    ):
        load_settings({})


def test_every_source_takes_a_secret_from_a_file_and_the_command_line_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("in_file", "in_environment", "on_command_line"):
        (tmp_path / name).write_text(f"token-{name}")
    DEFAULT_CONFIG_FILE.write_text(f'token-file = "{tmp_path / "in_file"}"\n')
    assert load_settings({}).access.token.get_secret_value() == "token-in_file"
    monkeypatch.setenv("DRAGOMAN_TOKEN_FILE", str(tmp_path / "in_environment"))
    assert load_settings({}).access.token.get_secret_value() == "token-in_environment"
    option = {"token_file": str(tmp_path / "on_command_line")}
    assert load_settings(option).access.token.get_secret_value() == "token-on_command_line"
    with pytest.raises(SettingsError, match=r"^--token-file \(command line\): --token is set, too; remove one$"):
        load_settings({**option, "token": "another"})
    with pytest.raises(SettingsError, match=r"^--token-file \(command line\): .*absent cannot be read"):
        load_settings({"token_file": str(tmp_path / "absent")})
    monkeypatch.delenv("DRAGOMAN_TOKEN_FILE")
    DEFAULT_CONFIG_FILE.write_text('token-file = "absent"\ntoken = "another"\n')
    with pytest.raises(SettingsError, match=r"^token-file \(dragoman.toml\): token is set, too; remove one$"):
        load_settings({})


def test_an_invalid_secret_of_a_file_on_the_command_line_is_reported_there(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("nonsense")
    with pytest.raises(SettingsError, match=r"^--store-file \(command line\): "):
        load_settings({"store_file": str(tmp_path / "store")})


def test_an_invalid_secret_of_a_file_is_reported_with_the_key_of_that_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("two\nlines")
    DEFAULT_CONFIG_FILE.write_text(f'token-file = "{tmp_path / "token"}"\n')
    with pytest.raises(SettingsError, match=r"^token-file \(dragoman.toml\): must be printable ASCII on one line"):
        load_settings({})
    with pytest.raises(SettingsError, match=r"^--token-file \(command line\): must be printable ASCII on one line"):
        load_settings({"token_file": str(tmp_path / "token")})
    DEFAULT_CONFIG_FILE.write_text("token-file = 3\n")
    with pytest.raises(SettingsError, match=r"^token-file \(dragoman.toml\): must be the path of a file, in quotes$"):
        load_settings({})


def test_an_invalid_secret_is_reported_with_the_variable_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store").write_text("nonsense")
    monkeypatch.setenv("DRAGOMAN_STORE_FILE", str(tmp_path / "store"))
    with pytest.raises(SettingsError, match=r"^DRAGOMAN_STORE_FILE \(environment\): "):
        load_settings({})


@pytest.mark.parametrize("name", ["CONFIG_FILE", "SLOTS_FILE", "APP_FILE"])
def test_only_secrets_may_be_in_files(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"DRAGOMAN_{name}", "dragoman.toml")
    with pytest.raises(SettingsError, match=rf"^DRAGOMAN_{name} \(environment\): is not a setting"):
        load_settings({})
