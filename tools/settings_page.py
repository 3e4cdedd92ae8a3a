"""`make settings`: writes docs/reference/settings.md anew from the options of `dragoman serve`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from dragoman.cli.serve.options import SERVE_OPTIONS, ServeOption
from dragoman.settings.sources import ENV_PREFIX
from tools.pages import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "settings.md"

HEAD: Final = f"""\
# Settings

Made by `make settings` from the options of `dragoman serve`; `dragoman serve --help` says the same.

Each is an option, a variable and a key in `dragoman.toml`: `--log-format json` is `{ENV_PREFIX}LOG_FORMAT=json` is
`log-format = "json"` (or `log_format`). Where several say something, the first of these wins: the command line, the
environment, the file, the default. The file is the one that `--config` names, else `dragoman.toml` where the server
is started, if there is one. What is wrong is refused with its name, its rule and where it was said:

```console
$ dragoman serve --slots 0
error: --slots (command line): "0" must be greater than or equal to 1
$ {ENV_PREFIX}LOG_FORMAT=xml dragoman serve
error: {ENV_PREFIX}LOG_FORMAT (environment): "xml" must be 'text' or 'json'
```

An option without a value is `true` or `false` in the other two. Several values are written with commas, or as a list
in TOML. Sizes are bytes, or `64KiB`, `16MiB`; ages are `30d`, `12h`, `90m`, `45s`.

The argument of `serve`, also `{ENV_PREFIX}APP` and `app`, is a `.py` file or a module with agents. Default: the
playground.
"""


def rows(options: tuple[ServeOption, ...]) -> Iterator[str]:
    yield "| option | what it is | without it |"
    yield "|---|---|---|"
    for option in options:
        name = "--" + option.name.replace("_", "-")
        value = option.value
        written = value if value.startswith("--") else f"{name} {value}".rstrip()
        match = re.fullmatch(r"(?P<what>.*?)(?: \[(?P<default>[^\]]*)\])?", option.help)
        assert match is not None
        default = match["default"] or ("off" if option.kind is bool else "")
        cells = (f"`{written}`", match["what"], default)
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("*", "\\*") for cell in cells) + " |"


def page() -> str:
    """The page as it should be."""
    texts = [HEAD]
    for heading, options in SERVE_OPTIONS.items():
        texts += [f"\n## {heading or 'What is served, and where'}\n\n", "\n".join(rows(options)), "\n"]
    return "".join(texts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
