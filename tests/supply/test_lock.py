"""The lock has hashes for all packages, including the installer."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.tags import compatible_tags, cpython_tags, mac_platforms
from packaging.utils import parse_wheel_filename

ROOT: Final = Path(__file__).parents[2]
LOCK: Final[dict[str, Any]] = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))
HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")


def files(package: dict[str, Any]) -> list[dict[str, Any]]:
    return [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]


def test_every_locked_file_has_a_hash_and_comes_from_the_public_index() -> None:
    packages = [package for package in LOCK["package"] if package["name"] != "dragoman"]
    assert len(packages) > 100
    for package in packages:
        assert package["source"] == {"registry": "https://pypi.org/simple"}, package["name"]
        assert files(package), package["name"]
        for file in files(package):
            assert HASH.fullmatch(file["hash"]), file["url"]
            assert file["url"].startswith("https://files.pythonhosted.org/"), file["url"]


def test_the_lock_has_the_dependencies_of_pyproject() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    (own,) = [package for package in LOCK["package"] if package["name"] == "dragoman"]
    names = {re.split(r"[\[<>=!;~ ]", text)[0] for text in dependencies}
    assert names == {one["name"] for one in own["dependencies"]}


NO_WHEELS: Final = {"nkeys": "pure Python"}
"""Dependencies whose only file is an archive of their sources."""


def dependencies_of(name: str) -> set[str]:
    """A package and all that it needs, with its extras, on other systems than Windows."""
    packages = {package["name"]: package for package in LOCK["package"]}
    found, left = set(), [name]
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            groups = [packages[name].get("dependencies", ()), *packages[name].get("optional-dependencies", {}).values()]
            left += [one["name"] for group in groups for one in group if "== 'win32'" not in one.get("marker", "")]
    return found


@pytest.mark.parametrize("python", [(3, 11), (3, 12), (3, 13), (3, 14)])
@pytest.mark.parametrize("system", ["Linux", "macOS"])
def test_a_server_with_all_extras_needs_no_compiler_on_arm64(python: tuple[int, int], system: str) -> None:
    glibc = [*(f"manylinux_2_{minor}_aarch64" for minor in range(17, 37)), "manylinux2014_aarch64"]  # that of Debian 12
    platforms = {"Linux": glibc, "macOS": list(mac_platforms((14, 0), "arm64"))}[system]
    usable = {*cpython_tags(python, platforms=platforms), *compatible_tags(python, "cp{}{}".format(*python), platforms)}
    needed = dependencies_of("dragoman") - {"dragoman"}
    assert len(needed) > 50
    without = {
        package["name"]
        for package in LOCK["package"]
        if package["name"] in needed
        and not any(
            parse_wheel_filename(file["url"].rpartition("/")[2])[3] & usable for file in package.get("wheels", ())
        )
    }
    assert without == set(NO_WHEELS)


def test_uv_itself_is_installed_by_hash() -> None:
    (uv,) = [package for package in LOCK["package"] if package["name"] == "uv"]
    text = (ROOT / "tools" / "uv.txt").read_text("utf-8")
    assert text.startswith(f"uv=={uv['version']} ")
    assert sorted(HASH.findall(text)) == sorted(file["hash"] for file in files(uv))
    assert "--require-hashes -r tools/uv.txt" in (ROOT / "Makefile").read_text("utf-8")


def test_scripts_install_only_locked_packages() -> None:
    for script in (ROOT / "tools" / "make_env.sh", ROOT / "tools" / "tool_env.sh"):
        for line in script.read_text("utf-8").splitlines():
            if " sync " in line or " export " in line:
                assert "--frozen" in line, line
            if "pip install" in line and "--editable ." not in line:
                assert "--require-hashes" in line, line
