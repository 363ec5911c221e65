"""Signing in to the broker's page, out of it, and a session that ends while somebody looks."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from support.http.http_api import Api

expect.set_options(timeout=60_000)

RIGHTS = {"configure": ".*", "write": ".*", "read": ".*"}


@pytest.fixture
def refused(visitor: Any) -> None:
    """A test in which the broker refuses who asks: the browser logs that as an error."""
    visitor.expects("status of 401")


def make_user(api: Api, name: str, tags: str) -> None:
    """Add a user with the password `guest` who may do everything in the vhost `/`."""
    assert api.change("PUT", f"/api/users/{name}", {"password": "guest", "tags": tags}) in (
        201,
        204,
    )
    assert api.change("PUT", f"/api/permissions/%2F/{name}", RIGHTS) in (201, 204)


def sign_in(page: Page, user: str, password: str = "guest") -> None:  # noqa: S107  everybody's
    """Fill in the form and send it."""
    # The view before it has a field to filter by name.
    page.get_by_label("Name", exact=True).fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


@pytest.mark.usefixtures("refused")
def test_the_form_leads_to_the_view_that_was_asked_for(visitor: Any, api: Api) -> None:
    assert api.change("PUT", "/api/queues/%2F/wanted", {"durable": True}) == 201
    page = visitor.open(user=None)
    page.goto("#/queues/%2F/wanted")
    expect(page.get_by_label("Name")).to_be_focused()
    expect(page.locator(".hint")).to_have_count(0)
    sign_in(page, "guest", "wrong")
    expect(page.get_by_role("alert")).to_contain_text("The name or the password is wrong")
    assert page.context.cookies() == []
    sign_in(page, "guest")
    expect(page.get_by_role("heading", level=1)).to_contain_text("wanted")
    [cookie] = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert page.evaluate("document.cookie") == ""


@pytest.mark.usefixtures("refused")
def test_who_signs_out_is_out(visitor: Any) -> None:
    page = visitor.open()
    page.goto("#/queues")
    [cookie] = page.context.cookies()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    expect(page.locator(".hint")).to_have_count(0)
    assert page.context.cookies() == []
    # The token is of no use to who had it, and the way back shows nothing.
    page.context.add_cookies([cookie])
    assert page.context.request.get("api/whoami").status == 401
    page.go_back()
    page.go_forward()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()


@pytest.mark.usefixtures("refused")
def test_a_session_that_ends_leads_back_to_its_view(visitor: Any, api: Api) -> None:
    make_user(api, "watcher", "monitoring")
    assert api.change("PUT", "/api/queues/%2F/watched", {"durable": True}) == 201
    page = visitor.open(user="watcher")
    page.goto("#/queues?name=watched&sort=name")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Declare a queue").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    # Setting a password ends the sessions that rest on it.
    make_user(api, "watcher", "monitoring")
    expect(page.get_by_role("status")).to_contain_text("Your session has ended")
    expect(page.get_by_role("dialog")).to_have_count(0)
    sign_in(page, "watcher")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.url.endswith("#/queues?name=watched&sort=name")
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.pages_more
@pytest.mark.usefixtures("refused")
def test_the_log_tells_that_the_session_ended(visitor: Any, api: Api) -> None:
    # The stream ends in the middle.
    visitor.expects("ERR_INCOMPLETE_CHUNKED_ENCODING")
    make_user(api, "reader", "monitoring")
    page = visitor.open(user="reader")
    page.goto("#/log")
    expect(page.locator(".log-line").first).to_be_visible()
    make_user(api, "reader", "monitoring")
    expect(page.get_by_role("status")).to_contain_text("Your session has ended")
    sign_in(page, "reader")
    expect(page.locator(".log-line").first).to_be_visible()


@pytest.mark.pages_more
@pytest.mark.usefixtures("refused")
def test_the_choice_of_one_user_is_not_that_of_the_next(visitor: Any, api: Api) -> None:
    make_user(api, "first", "monitoring")
    make_user(api, "second", "management")
    assert api.change("PUT", "/api/vhosts/theirs") == 201
    assert api.change("PUT", "/api/permissions/theirs/first", RIGHTS) in (201, 204)
    assert api.change("PUT", "/api/queues/%2F/common", {"durable": True}) == 201
    page = visitor.open(user="first")
    page.goto("#/queues")
    page.get_by_label("Vhost").select_option("theirs")
    expect(page.locator(".empty-title")).to_have_text("There is no queue here")
    page.get_by_role("button", name="Sign out").click()
    sign_in(page, "second")
    expect(page.locator("tbody")).to_contain_text("common")


@pytest.mark.pages_more
def test_who_has_no_tag_for_a_view_is_not_led_there(visitor: Any, api: Api) -> None:
    make_user(api, "manager", "management")
    visitor.expects("status of 401")
    page = visitor.open(user="manager")
    page.goto("#/queues")
    page.get_by_role("heading", name="Queues").wait_for()
    assert page.locator("nav.views").get_by_role("link", name="Users").count() == 0
    page.keyboard.press("g")
    page.keyboard.press("u")
    page.keyboard.press("g")
    page.keyboard.press("e")
    expect(page.get_by_role("heading", level=1)).to_have_text("Exchanges")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    # Who types the address is told, and stays signed in.
    page.goto("#/users")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


@pytest.mark.pages_more
def test_basic_credentials_need_no_session(visitor: Any) -> None:
    page = visitor.open(user=None, extra_http_headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
    page.goto("#/overview")
    expect(page.locator("main")).to_contain_text("Message rates")
    assert page.context.cookies() == []


@pytest.mark.pages_more
@pytest.mark.parametrize("address", ["#/constructor", "#/toString/x", "#/__proto__"])
def test_an_address_is_no_name_of_the_language(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.locator(".empty-title")).to_have_text("There is no such view")
