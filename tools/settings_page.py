"""`make settings`: writes docs/reference/settings.md anew from the options of `dragoman serve`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from dragoman.cli.serve.options import MOST_USED, serve_options
from dragoman.ports.extension import Option
from dragoman.settings.sources import ENV_PREFIX
from tools.pages import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "settings.md"

HEAD: Final = f"""\
# Settings

`dragoman serve --help` shows the settings of most servers, marked with ★ here, `dragoman serve --help-all` all of them.

Each setting can be given in three ways: as an option (`--log-format json`), as an environment variable
(`{ENV_PREFIX}LOG_FORMAT=json`) or in a TOML file (`log-format = "json"` or `log_format = "json"`). If a setting is
given more than once, the command line wins, then the environment, then the file. The file is the one that `--config`
names, or else `dragoman.toml` in the working directory. An invalid value or an unknown name stops the start with the
setting, the rule and the place it came from:

```console
$ dragoman serve --slots 0
error: --slots (command line): "0" must be greater than or equal to 1
$ {ENV_PREFIX}LOG_FORMAT=xml dragoman serve
error: {ENV_PREFIX}LOG_FORMAT (environment): "xml" must be 'text' or 'json'
$ {ENV_PREFIX}API_KEY=true dragoman serve
error: {ENV_PREFIX}API_KEY (environment): is not a setting; did you mean {ENV_PREFIX}API_KEYS?
```

The value of a setting that can be a secret, such as `--token` or `--store`, can be in a file: `{ENV_PREFIX}TOKEN_FILE`,
`token-file` in TOML or `--token-file` has its path. The command line is no place for secrets: every user of the machine
can read it (`ps`).

Variables of the other commands, such as `{ENV_PREFIX}SERVER`, and those that Kubernetes sets for a Service called
`dragoman` are not unknown names.

An option without a value is `true` or `false` in the environment and in the file. Several values are separated by
commas; in TOML they can also be a list. Sizes are numbers of bytes, or `64KiB`, `16MiB`; durations are `30d`, `12h`,
`90m`, `45s`.

Settings of [extensions](../how-to/extensions.md), such as PostgreSQL, may stand in a table of the file:
`[extensions.postgres]` with `connections = 20` is `postgres-connections = 20`.

The argument of `serve` is a `.py` file or a module with agents. It can also be given as `{ENV_PREFIX}APP` or `app`.
Default: the playground.
"""


def rows(options: Sequence[Option]) -> Iterator[str]:
    yield "| option | description | default |"
    yield "|---|---|---|"
    for option in options:
        name = "--" + option.name.replace("_", "-")
        value = option.value
        written = value if value.startswith("--") else f"{name} {value}".rstrip()
        match = re.fullmatch(r"(?P<what>.*?)(?: \[(?P<default>[^\]]*)\])?", option.help)
        assert match is not None
        default = match["default"] or ("off" if option.kind is bool else "")
        cells = (match["what"].replace("*", "\\*"), default.replace("*", "\\*"))
        star = " ★" if option.name in MOST_USED else ""
        yield f"| {_code(written)}{star} | " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _code(text: str) -> str:
    """Code in a cell. A bar needs HTML: MkDocs shows the backslash that GitHub would hide."""
    return f"<code>{text.replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def page() -> str:
    """The page as it should be."""
    texts = [HEAD]
    for heading, options in serve_options().items():
        texts += [f"\n## {heading or 'Addresses, agents and logs'}\n\n", "\n".join(rows(options)), "\n"]
    return "".join(texts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
