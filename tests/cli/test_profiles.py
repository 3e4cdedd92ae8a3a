"""Where profiles and their keys are stored."""

from __future__ import annotations

import stat
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from dragoman.cli.profiles import (
    Profile,
    ProfileError,
    delete_profile,
    find_profile,
    profiles_file,
    read_profiles,
    save_profile,
)


class Keyring(ModuleType):
    """The functions of the library `keyring` that are used, with a dictionary as its backend."""

    def __init__(self, *, broken: bool = False) -> None:
        super().__init__("keyring")
        self.__spec__ = ModuleSpec("keyring", None)
        self.passwords: dict[tuple[str, str], str] = {}
        self.broken = broken

    def set_password(self, service: str, name: str, password: str) -> None:
        if self.broken:
            raise RuntimeError("No recommended backend was available")
        self.passwords[service, name] = password

    def get_password(self, service: str, name: str) -> str | None:
        return self.passwords.get((service, name))

    def delete_password(self, service: str, name: str) -> None:
        del self.passwords[service, name]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "keyring", None)
    return tmp_path


def test_without_a_keyring_the_key_is_in_a_file_that_only_its_owner_can_read(folder: Path) -> None:
    stored = save_profile("default", Profile("https://there", "dgm_secret", ca="/ca.pem"))
    file = folder / "dragoman" / "profiles.json"
    assert profiles_file() == file
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stored.key_place == "file"
    assert read_profiles() == {"default": Profile("https://there", "dgm_secret", ca="/ca.pem")}
    assert [path.name for path in file.parent.iterdir()] == ["profiles.json"]


def test_a_keyring_has_the_key_and_the_file_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = Keyring()
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    stored = save_profile("prod", Profile("https://there", "dgm_secret"))
    assert stored.key_place == "keyring"
    assert keyring.passwords == {("dragoman", "prod"): "dgm_secret"}
    assert "dgm_secret" not in profiles_file().read_text()
    assert read_profiles()["prod"].read_key("prod") == "dgm_secret"
    keyring.passwords.clear()
    with pytest.raises(ProfileError, match=r"no key for profile prod; run: dragoman login --profile prod"):
        read_profiles()["prod"].read_key("prod")


def test_a_keyring_that_fails_leaves_the_key_to_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", Keyring(broken=True))
    assert save_profile("prod", Profile("https://there", "dgm_secret")).key_place == "file"
    assert read_profiles()["prod"].read_key("prod") == "dgm_secret"


def test_a_key_that_moves_to_the_file_leaves_none_in_the_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = Keyring()
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    save_profile("prod", Profile("https://there", "dgm_secret"))
    assert delete_profile("prod")
    assert keyring.passwords == {}
    assert read_profiles() == {}
    assert not delete_profile("prod")


def test_the_named_profile_applies_or_else_the_default() -> None:
    assert find_profile("") is None
    with pytest.raises(ProfileError, match='no profile "prod"; there are none; run: dragoman login --profile prod'):
        find_profile("prod")
    save_profile("default", Profile("https://here"))
    save_profile("prod", Profile("https://there"))
    assert find_profile("") == ("default", Profile("https://here"))
    assert find_profile("prod") == ("prod", Profile("https://there"))
    with pytest.raises(ProfileError, match='no profile "old"; there are default, prod'):
        find_profile("old")


@pytest.mark.parametrize("text", ["", "[]", '{"default": 3}', '{"default": {"color": "red"}}', '{"default": {}}'])
def test_a_file_of_something_else_is_reported(text: str) -> None:
    profiles_file().parent.mkdir()
    profiles_file().write_text(text)
    with pytest.raises(ProfileError, match="is not a file of profiles; delete it"):
        read_profiles()


def test_a_folder_that_cannot_be_written_is_reported(folder: Path) -> None:
    (folder / "dragoman").write_text("a file")
    with pytest.raises(ProfileError, match=r"profiles\.json cannot be written"):
        save_profile("default", Profile("https://here"))
