"""The lock has hashes for all packages, including the installer."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

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
