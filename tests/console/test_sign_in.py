"""Sign-in of people at the console: at an issuer, or with an API key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.console.browser import Page, opened
from tests.console.served import staged
from tests.console.test_looks import issues
from tests.security.oidc_provider import Provider, provider
from tests.security.token_issuer import AUDIENCE, claims, rsa_key, token

from dragoman import Turn, agent
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app

pytestmark = pytest.mark.browser

SIGN_IN = ".sign-in"
ACCOUNT = "document.querySelector('.account > button')?.textContent"


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


async def test_people_sign_in_at_the_issuer_and_out_again(browser: str, tmp_path: Path) -> None:
    async with console(browser, tmp_path) as (page, _):
        await page.click(".providers button", "Sign in with")
        await page.until(f"{ACCOUNT} === 'alice'")
        await page.becomes("location.search + location.hash", "#/agents")
        await page.becomes("Object.keys(sessionStorage).join() + localStorage.length", "dragoman.key0")
        await page.click(".account > button")
        await page.click(".account [role=menuitem]", "Your account")
        await page.see("operator: sees and changes the tasks of all principals", "#main")
        assert await issues(page) == []
        await page.click("#main button", "Sign out")
        await page.see("Sign in to Dragoman", SIGN_IN)
        await page.becomes("sessionStorage.length", 0)


async def test_a_refused_sign_in_says_why(browser: str, tmp_path: Path) -> None:
    async with console(browser, tmp_path) as (page, issuer):
        issuer.person = ""
        await page.click(".providers button", "Sign in with")
        await page.see("Not today.", SIGN_IN)
        await page.becomes("sessionStorage.length", 0)


async def test_a_code_that_this_tab_did_not_ask_for_is_not_used(browser: str, tmp_path: Path) -> None:
    async with console(browser, tmp_path) as (page, issuer):
        await page.run("location.assign('console?code=code-0&state=of-another')")
        await page.see("not begun in this tab", SIGN_IN)
        assert "/token" not in issuer.requests


async def test_the_sign_in_page_has_nothing_behind_it_and_accuses_nobody(browser: str, tmp_path: Path) -> None:
    async with console(browser, tmp_path) as (page, issuer):
        await page.see("Sign in to Dragoman", SIGN_IN)
        await page.becomes("document.title", "Sign in · Dragoman")
        assert await page.run("document.querySelector('nav, .list, [role=alert]')") is None
        for colors in ("light", "dark"):
            await page.prefer(colors)
            assert await issues(page) == []
        await page.run(
            "window.calls = 0; window.fetched = fetch; window.fetch = (...call) => (calls++, fetched(...call))"
        )
        await page.type("#key", "nonsense")
        await page.press("Enter")
        await page.see("This key is not valid.", f"{SIGN_IN} [role=alert]")
        await page.becomes("sessionStorage.length", 0)
        # Behind a view, the agents are polled every two seconds: here nothing is read besides the check of the key.
        await page.run("new Promise(done => setTimeout(done, 2500))")
        assert await page.run("calls") == 1
        good = token(claims(iss=issuer.url, sub="bob"), key=rsa_key("one"), kid="one")
        await page.type("#key", good)
        await page.press("Enter")
        await page.until(f"{ACCOUNT} === 'bob'")


async def test_operators_land_on_the_overview(browser: str, tmp_path: Path) -> None:
    async with console(browser, tmp_path) as (page, _):
        await page.run("location.hash = ''")
        await page.click(".providers button", "Sign in with")
        await page.until("document.title === 'Overview · Dragoman'")
        await page.becomes("document.querySelector('.top nav [aria-current]').innerText", "Overview")


async def test_agents_can_be_seen_without_signing_in_and_a_typed_message_is_kept(browser: str, tmp_path: Path) -> None:
    async with console(browser, tmp_path) as (page, issuer):
        await page.click(f"{SIGN_IN} button", "See the agents")
        await page.see("Echo", "#main")
        await page.run("location.hash = '#/new?agent=echo'")
        await page.type("#message", "good morning")
        await page.click(".compose button", "Send")
        await page.see("Sign in to Dragoman", SIGN_IN)
        await page.type("#key", token(claims(iss=issuer.url, sub="bob"), key=rsa_key("one"), kid="one"))
        await page.press("Enter")
        await page.becomes("document.querySelector('#message')?.value", "good morning")
        await page.type("#message", "hello")
        # The key is refused from now on, as when it has expired.
        await page.run(
            "window.fetched = fetch; window.fetch = async (...call) => String(call[0]).includes('console')"
            " ? fetched(...call) : new Response('{}', {status: 401})"
        )
        await page.click(".compose button", "Send")
        await page.see("Your key is no longer valid. Sign in again.", SIGN_IN)
        await page.run("window.fetch = fetched; 0")
        await page.type("#key", token(claims(iss=issuer.url, sub="bob"), key=rsa_key("one"), kid="one"))
        await page.press("Enter")
        await page.becomes("document.querySelector('#message')?.value", "hello")


async def test_a_server_without_authentication_offers_no_sign_in(browser: str, tmp_path: Path) -> None:
    async with staged(browser, tmp_path) as stage:
        page = stage.page
        await page.see("No tasks yet", ".list")
        await page.becomes("document.querySelector('.sign-in-link')", None)
        await page.click(".account > button")
        await page.see("Dark", ".account")
        assert "Sign out" not in await page.text(".account")
