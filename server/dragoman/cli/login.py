"""`login` and `logout`: profiles that the other commands use."""

from __future__ import annotations

import getpass
import json as json_format
import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from dragoman.calling.secret_files import check_header_secret
from dragoman.cli import ExitCode, print_error, profiles
from dragoman.cli.commands import Command, argument, flag, option, run_command
from dragoman.cli.options import DEFAULT_SERVER, Ca, Cert, Json, check_server
from dragoman.cli.output import ConsoleOutput
from dragoman.client import NotAllowed
from dragoman.client.operations import Operator

ProfileName = Annotated[str, option("--profile", "NAME", "The profile. [default]", envvar="DRAGOMAN_PROFILE")]


def login(
    address: Annotated[
        str, argument("ADDRESS", "The server, as for --server. [that of the profile, else 127.0.0.1:50051]")
    ] = "",
    profile: ProfileName = "",
    list_all: Annotated[bool, flag("--list", "List the profiles, without keys.")] = False,
    json: Json = False,
    key: Annotated[
        str, option("--key", "KEY", "The key; other users of this machine can read command lines. [it is asked for]")
    ] = "",
    ca: Ca = None,
    cert: Cert = None,
) -> ExitCode:
    """Store the address of a server and an API key for it, which the other commands use.

    The key is read without echo, or from stdin if that is not a terminal; an empty one stores the address only. The
    server checks it before it is stored: in the system's keyring if the library `keyring` is installed, otherwise in
    `~/.config/dragoman/profiles.json`, which only you can read.

    Commands use the profile `default`, or that of `dragoman --profile NAME COMMAND` or `DRAGOMAN_PROFILE`. `--server`
    and `DRAGOMAN_SERVER` take precedence; the key of a profile is sent to the server of the profile only.

    **Examples**

    `dragoman login https://agents.example`

    `dragoman login https://staging.example --profile staging < key`

    `dragoman login --list`
    """
    if list_all:
        return print_profiles(profile, json=json)
    name = profile or profiles.DEFAULT_PROFILE
    if not profiles.PROFILE_NAME.fullmatch(name):
        raise typer.BadParameter(f'--profile: "{name}" must be 1 to 64 letters, digits, ".", "_" and "-"')
    known = profiles.read_profiles().get(name)
    server = check_server(address or (known.server if known else DEFAULT_SERVER)).rstrip("/")
    wanted = profiles.Profile(server, read_key(server, key), ca=_absolute(ca), cert=_absolute(cert))
    return run_command(server, partial(log_in, name, wanted, json=json))


def logout(profile: ProfileName = "") -> ExitCode:
    """Delete a profile and its key on this machine.

    The key stays valid: `dragoman keys revoke` ends it.

    **Example**: `dragoman logout --profile staging`
    """
    name = profile or profiles.DEFAULT_PROFILE
    if not profiles.delete_profile(name):
        return print_error(f'no profile "{name}"', ExitCode.NOT_FOUND)
    ConsoleOutput().line(f"profile {name} deleted")
    return ExitCode.OK


def read_key(server: str, key: str = "") -> str:
    """Returns a key, or reads one: without echo, or the first line of stdin if that is not a terminal. Exits for an
    invalid one."""
    if not key:
        prompt = f"API key for {server} (empty for none): "
        key = getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline()
    try:
        return check_header_secret(key.strip(), "the key")
    except ValueError as error:
        raise typer.Exit(print_error(error, ExitCode.USAGE)) from error


def _absolute(file: Path | None) -> str:
    return str(file.absolute()) if file else ""


async def log_in(name: str, profile: profiles.Profile, *, json: bool) -> ExitCode:
    """Lets the server check the key, and stores the profile. Nothing is stored if the server rejects the key."""
    try:
        async with Operator(profile.server, token=profile.key) as operator:
            caller = await operator.whoami()
    except NotAllowed as error:
        what = "this key" if profile.key else "callers without a key"
        text = f"{profile.server} rejects {what}, so nothing was stored: {error.message}"
        return print_error(text, ExitCode.UNAVAILABLE, name=error.reason or error.code)
    try:
        stored = profiles.save_profile(name, profile)
    except profiles.ProfileError as error:
        return print_error(error, ExitCode.FAILED)
    out = ConsoleOutput()
    if json:
        grants = {"principal": caller.principal, "grants": caller.grants} if caller else {}
        fields = {"profile": name, "server": profile.server, **grants, "key": stored.key_place}
        out.write(json_format.dumps(fields) + "\n")
        return ExitCode.OK
    who = f" as {caller.principal}, grants: {', '.join(caller.grants) or 'none'}" if caller else ""
    out.line(f"logged in to {profile.server}{who}")
    out.line(f"profile {name}; key: {stored.key_place}")
    return ExitCode.OK


def print_profiles(chosen: str, *, json: bool) -> ExitCode:
    """Prints the profiles, and which address the other commands use."""
    known = profiles.read_profiles()
    out, active = ConsoleOutput(), chosen or profiles.DEFAULT_PROFILE
    if json:
        for name, one in known.items():
            fields = {"profile": name, "server": one.server, "key": one.key_place, "active": name == active}
            out.write(json_format.dumps(fields) + "\n")
        return ExitCode.OK
    rows = [("*" if name == active else "", name, one.server, one.key_place) for name, one in sorted(known.items())]
    if rows:
        out.table(("", "PROFILE", "SERVER", "KEY"), rows, [0] * len(rows))
    if server := os.environ.get("DRAGOMAN_SERVER"):
        out.line(f"commands use {server}, from DRAGOMAN_SERVER")
    elif active in known:
        out.line(f"commands use {known[active].server}, from profile {active}")
    else:
        out.line(f"commands use {DEFAULT_SERVER}, the default")
    return ExitCode.OK


COMMANDS: Final = {"login": Command(login), "logout": Command(logout)}
