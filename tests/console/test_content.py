"""What the console shows of a part: Markdown, JSON, tables, code, links, long texts; and that no part executes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from tests.console.browser import Page
from tests.console.served import PNG, staged
from tests.console.test_looks import OF_COLORS, TOO_WIDE, issues

from dragoman import Turn, agent, types
from dragoman.ports import Agent

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(180),  # axe checks every element, which is slow on a busy machine
]

REPORT: Final = """# Quarterly review

Revenue **grew 12 %**: see [the sheet](https://example.com/sheet "all of it") and https://example.com/more.

#### By region

| Region | Q3 |
|---|---:|
| EMEA | 1,377 |

1. Raise prices
   - [x] in APAC

```python
def growth(a: int) -> str:
    return "12 %"
```

---

An end,
on two lines.

> Nobody reads the *footnotes*.
![A picture](https://images.evil.example/x.png)
"""

ATTACKS: Final = """<script>window.pwned = 1</script>

<img src=x onerror="window.pwned = 2"> inline <b onclick="window.pwned = 3">bold</b>

<iframe src="https://frames.evil.example/"></iframe><svg onload="window.pwned = 4"></svg>

[one](javascript:window.pwned=5) [two](JaVaScRiPt:window.pwned=6)
[three](data:text/html,<script>window.pwned=7</script>)
[four](vbscript:x) [five](/operations/tasks) [six](#/agents) [seven](//links.evil.example/)
[eight](  javascript:alert(1))
<javascript:window.pwned=8> [nine][ref] ![ten](javascript:window.pwned=9) ![eleven](data:image/svg+xml,<svg/>)
[<img src=x onerror=window.pwned=10>](https://example.com/a"onmouseover="window.pwned=11)
![twelve](https://images.evil.example/pixel.png) [thirteen](mailto:ann@example.com)

[ref]: javascript:window.pwned=12

`<script>window.pwned = 13</script>`

```html
<script>window.pwned = 14</script>
```

| <script>window.pwned = 15</script> | <a href="javascript:window.pwned=16">x</a> |
|---|---|

&lt;script&gt;window.pwned = 17&lt;/script&gt; &#60;img src=x onerror=window.pwned=18&#62;

[^1]: <style>* { display: none }</style>
"""

FOREIGN: Final = """
performance.getEntriesByType('resource').map(one => one.name)
  .filter(name => !name.startsWith(location.origin) && !/^(blob|data):/.test(name))
"""

UNSAFE: Final = """
[...document.querySelectorAll('.panel *')].flatMap(one => [
  ...(one.matches('script, iframe, style, object, embed, form, svg, img, link, meta, base') ? [one.outerHTML] : []),
  ...one.getAttributeNames().filter(name => /^(on|style)/.test(name)).map(name => `${one.tagName} ${name}`),
  ...(one.matches('a') && !/^(https?:|mailto:|blob:)/.test(one.href) ? [one.outerHTML] : []),
  ...(one.matches('a:not([download])') && one.rel !== 'noopener noreferrer' ? [one.outerHTML] : []),
])
"""


def answers(*parts: Any) -> Agent:
    """An agent that answers with these parts."""

    @agent(id="writer", name="Writer", description="Writes")
    async def writer(turn: Turn) -> list[Any]:
        return list(parts)

    return writer


async def shown(page: Page, selector: str) -> list[str]:
    """The texts of the elements."""
    found: list[str] = await page.run(f"[...document.querySelectorAll('.panel {selector}')].map(one => one.innerText)")
    return found


async def test_markdown_of_agents_is_rendered(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path, answers(types.text(REPORT))) as stage:
        page = stage.page
        await stage.send("*What* is new? (https://example.com/sheet_(1).)", "writer")
        await page.see("Nobody reads the footnotes.", ".panel blockquote")
        assert await shown(page, ".markdown strong") == ["grew 12 %"]
        assert await shown(page, ".markdown :is(h3, h4)") == ["Quarterly review", "By region"]
        assert await shown(page, ".markdown :is(td, th)") == ["Region", "Q3", "EMEA", "1,377"]
        assert await shown(page, ".markdown .hljs-keyword, .panel .markdown .hljs-string") == [
            "def",
            "return",
            '"12 %"',
        ]
        assert await page.run("document.querySelector('.panel .markdown input').checked") is True
        links = "[...document.querySelectorAll('.panel {} a')].map(one => [one.href, one.target, one.rel])"
        safe = ["_blank", "noopener noreferrer"]
        # An image of another origin is a link, because showing it would be a request that leaves the server.
        await page.becomes(
            links.format(".markdown"),
            [
                ["https://example.com/sheet", *safe],
                ["https://example.com/more", *safe],
                ["https://images.evil.example/x.png", *safe],
            ],
        )
        assert await page.run(FOREIGN) == []
        # What a user wrote is shown as it was written, with links that can be clicked.
        assert await shown(page, "[data-kind=user] .text") == ["*What* is new? (https://example.com/sheet_(1).)"]
        await page.becomes(links.format("[data-kind=user]"), [["https://example.com/sheet_(1)", *safe]])
        # The source is one click, or key, away.
        await page.run("document.querySelector('.panel .raw').focus()")
        await page.press("Enter")
        await page.until("!document.querySelector('.panel .markdown')")
        await page.see("Revenue **grew 12 %**", ".panel [data-kind=artifact] pre")
        await page.becomes("document.querySelector('.panel .raw').ariaPressed", "true")


async def test_no_part_executes(browser: str, tmp_path: Path) -> None:
    parts = (
        types.text(ATTACKS),
        types.text(ATTACKS, media_type="text/html"),
        types.data({"<img src=x onerror=window.pwned=20>": "<script>window.pwned=21</script>", "__proto__": {"a": 1}}),
        types.file(b"<script>window.pwned=22</script>", name="page.html", media_type="text/html"),
        types.file(
            b"=1;<img src=x onerror=window.pwned=23>\n2;javascript:alert(1)", name="t.csv", media_type="text/csv"
        ),
        types.file(b"<svg xmlns='http://www.w3.org/2000/svg'/>", name="s.svg", media_type="text/xml"),
        types.file(b"x", name="<b onclick=window.pwned=24>", media_type='text/html"onload="x'),
    )
    async with staged(browser, tmp_path, answers(*parts)) as stage:
        page = stage.page
        for send in ("<script>window.pwned=30</script> javascript:window.pwned=31", ATTACKS):
            await stage.send(send, "writer")
            await page.see("completed", ".head")
            for tab in ("conversation", "artifacts"):
                await page.click(f"[data-tab={tab}]")
                await page.see("page.html", ".panel")
                for button in await page.run(
                    "[...document.querySelectorAll('.panel .unfold')].map(one => one.innerText)"
                ):
                    await page.click(".panel .unfold", button)
                await page.see("window.pwned = 17", ".panel .markdown")
                assert await page.run(UNSAFE) == []
                assert await page.run("window.pwned ?? null") is None
                # HTML is shown as text.
                await page.see("<script>window.pwned = 1</script>", ".panel .markdown")
                await page.see('<b onclick="window.pwned = 3">bold</b>', ".panel .markdown")
        links = await page.run("[...document.querySelectorAll('.panel .markdown a')].map(one => one.innerText)")
        assert "thirteen" in links
        assert "Image: twelve" in links
        assert not {"one", "two", "three", "four", "five", "six", "seven", "eight", "nine"} & set(links)
        assert await page.run(FOREIGN) == []
        assert page.errors == [], "no policy was violated, because nothing tried"


async def test_an_svg_file_cannot_be_opened_as_a_page_of_the_server(browser: str, tmp_path: Path) -> None:
    """An image runs no scripts, but its URL, opened in a tab, would be a page with the origin of the console."""
    svg = b"<svg xmlns='http://www.w3.org/2000/svg' width='8' height='8'><script>window.pwned = 1</script></svg>"
    parts = (types.file(svg, name="s.svg", media_type="image/svg+xml"), types.file(PNG, name="color.png"))
    async with staged(browser, tmp_path, answers(*parts)) as stage:
        page = stage.page
        await page.run(
            "window.made = []; window.make = URL.createObjectURL;"
            "URL.createObjectURL = blob => { made.push(blob.type); return make(blob) }; 0"
        )
        await stage.send("draw", "writer")
        await page.see("completed", ".head")
        await page.see("s.svg", ".panel")
        sources = await page.run("[...document.querySelectorAll('.panel img')].map(one => one.src.split(/[;/]/)[0])")
        assert sources == ["data:image", "blob:http:"]
        assert set(await page.run("made")) == {"application/octet-stream", "image/png"}
        assert await page.run("window.pwned ?? null") is None
        assert page.errors == []


async def test_data_and_files_are_previewed(browser: str, tmp_path: Path) -> None:
    data: dict[str, Any] = {"name": "tides", "deep": {"a": {"b": {"c": [1, None, True]}}}, "many": list(range(250))}
    parts = (
        types.data(data),
        types.file(
            'city;inhabitants\nUlm;126000\n"Aalen; Wasseralfingen";68000\n', name="cities.csv", media_type="text/csv"
        ),
        types.file("# Title\n", name="notes.md", media_type="text/markdown"),
        types.file("select 1", name="query.sql", media_type="application/octet-stream"),
        types.file(PNG, name="color.png"),
        types.file(b"\x00\xff\x01", name="data.bin", media_type="text/plain"),
    )
    async with staged(browser, tmp_path, answers(*parts)) as stage:
        page = stage.page
        await stage.send("show", "writer")
        await page.until("document.querySelector('.panel img')?.naturalWidth === 10")
        assert await shown(page, "figure :is(td, th)") == [
            *("city", "inhabitants", "Ulm", "126000", "Aalen; Wasseralfingen", "68000"),
        ]
        assert await shown(page, "figure .markdown .h1") == ["Title"]
        assert await shown(page, "figure .hljs-keyword") == ["select"]
        assert len(await shown(page, "figure a[download]")) == 5
        # Deep and long values are folded; each level is opened by mouse or key.
        assert "c:" not in await page.text(".panel .json")
        await page.click(".panel .json summary", "b:")
        await page.see("c: [3 items]", ".panel .json")
        await page.run(
            "[...document.querySelectorAll('.json summary')].find(one => /^many/.test(one.innerText)).focus()"
        )
        await page.press("Enter")
        await page.click(".panel .json button", "Show 100 of 150 more")
        await page.see("199: 199", ".panel .json")
        assert "200: 200" not in await page.text(".panel .json")
        await page.click(".panel .content:has(.json) .raw", "Raw")
        await page.click(".panel button", "Show all: ")
        assert json.loads(await page.text(".panel .content pre.data")) == data


async def test_long_texts_of_users_are_folded_and_answers_are_not(browser: str, tmp_path: Path) -> None:
    question = "\n".join(f"{number} of **300**" for number in range(300))
    answered = "\n".join(f"answer {number}" for number in range(300))
    async with staged(browser, tmp_path, answers(types.text(answered))) as stage:
        page = stage.page
        message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": question}]}
        async with stage.http.post("/writer/message:send", json={"message": message}) as sent:
            assert sent.status == 200
        await page.click(".list a.row")
        await page.see("19 of **300**", ".panel")
        await page.see("answer 299", ".panel")
        assert "20 of" not in await page.text(".panel")
        assert await shown(page, ".unfold") == ["Show all: 300 lines, 4.3 KiB"], "the answer is not folded"
        await page.click(".panel .unfold")
        await page.see("299 of **300**", ".panel")
        await page.click(".panel .unfold", "Show less")
        await page.until("!document.querySelector('.panel').innerText.includes('20 of **300**')")


@pytest.mark.parametrize(
    ("content", "sign"),
    [
        (types.text("word **bold** " * 150_000), "word bold"),
        (types.text("> " * 100_000), "> >"),
        (types.text("[a](" * 100_000), "[a]("),
        (types.text("*a **b " * 100_000), "*a **b"),
        (types.text(("> " * 8 + "- a\n") * 20_000), "a"),
        (types.text("|a|b|\n|-|-|\n" + "|1|2|\n" * 100_000), "1"),
        (types.text("http://a.example/" + ")" * 500_000), "http://a.example/"),
        (types.text("[" * 200_000 + "]" * 200_000, media_type="application/json"), "0: [1 item]"),
        (types.data(["x" * 500_000] * 3), "show 499002 more characters"),
        (types.data({f"key {number}": [number] * 9 for number in range(20_000)}), "{20,000 fields}"),
        (types.text(("a," * 500 + "\n") * 1_000, media_type="text/csv"), "The first 30 of 501 columns"),
        (types.text("x = '" * 200_000, media_type="text/x-python"), "x = "),
    ],
    ids=["words", "quotes", "links", "stars", "lists", "rows", "brackets", "json", "string", "object", "csv", "code"],
)
async def test_huge_content_does_not_freeze_the_page(browser: str, tmp_path: Path, content: Any, sign: str) -> None:
    async with staged(browser, tmp_path, answers(content), inline_bytes=16 << 20) as stage:
        page = stage.page
        await stage.put("show", "writer")
        # The longest time that the page did not react to input.
        await page.run(
            "(() => { let before = performance.now(); window.frozen = 0; setInterval(() => {"
            " const now = performance.now(); window.frozen = Math.max(window.frozen, now - before);"
            " before = now; }, 10); })()"
        )
        await page.click(".list a.row")
        await page.see(sign, ".panel")
        while await page.run("document.querySelector('.panel .unfold:not([data-done])') !== null"):
            await page.run("document.querySelector('.panel .unfold').dataset.done = 1")
            await page.run("document.querySelector('.panel .unfold').click()")
        await page.run("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        assert await page.run("window.frozen") < 30_000


async def test_content_is_accessible_and_fits_a_narrow_window(browser: str, tmp_path: Path) -> None:
    table = ";".join(f"column {number}" for number in range(12)) + "\n" + ";".join("a long value" for _ in range(12))
    code = (
        "```json\n"
        + json.dumps({"a": 1, "b": "x" * 200, "c": None})
        + "\n```\n```diff\n+ a\n- b\n```\n```sh\n# c\necho $A\n```"
    )
    wide = "| " + " | ".join("name" for _ in range(20)) + " |\n" + "|-" * 20 + "|\n"
    parts = (
        types.text(REPORT.replace("\n\n", "\n\n ")),
        types.text(code),
        types.text(wide),
        types.text("word" * 200),
        types.data({"a": [1, None, "x" * 300], "b": {"c": True}}),
        types.file(table, name="t.csv", media_type="text/csv"),
    )
    async with staged(browser, tmp_path, answers(*parts)) as stage:
        page = stage.page
        await stage.send("show", "writer")
        await page.see("a long value", ".panel")
        for tab in ("conversation", "artifacts"):
            await page.click(f"[data-tab={tab}]")
            for width in (1280, 380):
                await page.view(width, 700)
                await page.becomes("document.scrollingElement.scrollWidth", width)
                await page.becomes(TOO_WIDE, [], width)
                for colors in ("light", "dark"):
                    await page.prefer(colors)
                    assert await issues(page, *(OF_COLORS if colors == "dark" else ())) == [], (tab, width, colors)
