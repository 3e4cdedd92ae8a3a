"""Sign-in of people at the console: at an issuer, or with an API key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.console.browser import Page, opened
from tests.security.oidc_provider import Provider, provider
from tests.security.token_issuer import AUDIENCE, claims, rsa_key, token

from dragoman import Turn, agent
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app

pytestmark = pytest.mark.browser

DIALOG = "dialog.credentials[open]"


@agent(default=True)
async def echo(turn: Turn) -> str:
    return turn.principal


@asynccontextmanager
async def console(browser: str, folder: Path) -> AsyncIterator[tuple[Page, Provider]]:
    """The console of a server at whose issuer people sign in."""
    anywhere = Address("127.0.0.1", 0)
    async with provider() as issuer:
        settings = Settings(
            http=anywhere,
            grpc=anywhere,
            store=f"sqlite:///{folder}/t.db",
            issuers=[
                {
                    "url": issuer.url,
                    "audience": AUDIENCE,
                    "console_client": "console",
                    "console_scopes": "openid,dragoman:operator",
                }
            ],
            outbound_allow="127.0.0.1",
        )
        async with open_app(settings, [echo]) as app, opened(browser) as page:
            await page.go(f"http://{app.http}/console#/agents")
            yield page, issuer
            assert page.errors == []


async def open_dialog(page: Page) -> None:
    if not await page.run(f"document.querySelector('{DIALOG}') !== null"):
        await page.click("header .key")
    await page.until(f"document.querySelector('{DIALOG}')")


async def test_people_sign_in_at_the_issuer_and_out_again(browser: str, tmp_path: Path) -> None:
    async with console(browser, tmp_path) as (page, _):
        await open_dialog(page)
        await page.until("document.querySelector('.providers button')")
        await page.click(".providers button", "Sign in with")
        await page.until("document.querySelector('header .key')?.textContent === 'alice'")
        await page.becomes("location.search + location.hash", "#/agents")
        await page.becomes("Object.keys(sessionStorage).join() + localStorage.length", "dragoman.key0")
        await open_dialog(page)
        await page.see("operator", DIALOG)
        await page.click(f"{DIALOG} button", "Sign out")
        await page.until("document.querySelector('header .key')?.textContent === 'Sign in'")
        await page.becomes("sessionStorage.length", 0)


async def test_a_refused_sign_in_says_why(browser: str, tmp_path: Path) -> None:
    async with console(browser, tmp_path) as (page, issuer):
        issuer.person = ""
        await open_dialog(page)
        await page.until("document.querySelector('.providers button')")
        await page.click(".providers button", "Sign in with")
        await page.see("Not today.", DIALOG)
        await page.becomes("sessionStorage.length", 0)


async def test_a_code_that_this_tab_did_not_ask_for_is_not_used(browser: str, tmp_path: Path) -> None:
    async with console(browser, tmp_path) as (page, issuer):
        await page.run("location.assign('console?code=code-0&state=of-another')")
        await page.see("not begun in this tab", DIALOG)
        assert "/token" not in issuer.requests


async def test_a_wrong_key_is_not_kept_and_the_dialog_says_so(browser: str, tmp_path: Path) -> None:
    async with console(browser, tmp_path) as (page, issuer):
        await open_dialog(page)
        await page.type(f"{DIALOG} input", "nonsense")
        await page.click(f"{DIALOG} button", "Use this key")
        await page.until(f"document.querySelector('{DIALOG} form [role=alert]')")
        await page.becomes("sessionStorage.length", 0)
        good = token(claims(iss=issuer.url, sub="bob"), key=rsa_key("one"), kid="one")
        await page.type(f"{DIALOG} input", good)
        await page.click(f"{DIALOG} button", "Use this key")
        await page.until("document.querySelector('header .key')?.textContent === 'bob'")


async def test_a_closed_dialog_is_opened_again_by_what_the_user_does_only(browser: str, tmp_path: Path) -> None:
    async with console(browser, tmp_path) as (page, _):
        await page.run("location.hash = '#/tasks'")
        await page.until(f"document.querySelector('{DIALOG}')")
        await page.click(f"{DIALOG} button", "Close")
        await page.until(f"!document.querySelector('{DIALOG}')")
        # The list is read every two seconds, and rejected.
        await page.run(
            "window.rejections = 0; window.fetched = fetch; window.fetch = async (...call) => {"
            " const response = await fetched(...call); rejections += response.status === 401; return response; }"
        )
        await page.until("rejections >= 2")
        assert await page.run(f"document.querySelector('{DIALOG}')") is None
        await page.run("location.hash = '#/new?agent=echo'")
        await page.type("#message", "hello")
        await page.click(".compose button", "Send")
        await page.until(f"document.querySelector('{DIALOG}')")
