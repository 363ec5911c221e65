"""Each form of the broker's page that is not one queue's own, with its effect at the broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from leveret.client import BasicProperties, blocking
from leveret.client.blocking import Channel
from leveret.errors import ConnectionForced
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api

# A list is asked for every five seconds, and the machine may be busy.
expect.set_options(timeout=60_000)

pytestmark = pytest.mark.pages_more


@pytest.fixture(scope="module")
def channel(broker: BrokerProcess) -> Iterator[Channel]:
    """A channel that confirms."""
    with blocking.connect(f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F") as connection:
        channel = connection.channel()
        channel.confirm_select()
        yield channel


def answer(api: Api, path: str) -> Any:
    """Return what a path of the API holds."""
    status, found = api.ask("GET", f"/api/{path}")
    assert status == 200, found
    return found


def missing(api: Api, path: str) -> bool:
    """Tell whether a path of the API holds nothing."""
    return api.ask("GET", f"/api/{path}")[0] == 404


def asked(page: Page, button: str) -> Locator:
    """Press a button of the view that asks, and return what it asks."""
    page.locator("main").get_by_role("button", name=button).first.click()
    return page.get_by_role("dialog")


def done(page: Page, dialog: Locator, button: str, said: str) -> None:
    """Confirm what is asked, and wait until the page says that it is done."""
    dialog.get_by_role("button", name=button, exact=True).click()
    expect(page.locator(".said")).to_contain_text(said)
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_queue_is_declared(page: Page, api: Api) -> None:
    page.goto("#/queues")
    dialog = asked(page, "Declare a queue")
    dialog.get_by_label("Name").fill("made.here")
    dialog.get_by_label("Arguments").fill("[]")
    dialog.get_by_role("button", name="Declare").click()
    expect(dialog.get_by_role("alert")).to_contain_text("must be a JSON object")
    dialog.get_by_label("Arguments").fill('{"x-max-length": 5}')
    done(page, dialog, "Declare", "Queue 'made.here' is declared")
    expect(page.get_by_role("heading", level=1)).to_contain_text("made.here")
    row = answer(api, "queues/%2F/made.here")
    assert (row["durable"], row["arguments"]) == (
        True,
        {"x-max-length": 5, "x-queue-type": "classic"},
    )


def test_a_stream_is_declared(page: Page, api: Api) -> None:
    page.goto("#/streams")
    dialog = asked(page, "Declare a stream")
    dialog.get_by_label("Name").fill("made.stream")
    done(page, dialog, "Declare", "is declared")
    assert answer(api, "streams/%2F/made.stream")["next_offset"] == 0


def test_an_exchange_is_declared_bound_unbound_and_deleted(page: Page, api: Api) -> None:
    assert api.change("PUT", "/api/queues/%2F/bound.here", {"durable": True}) == 201
    page.goto("#/exchanges")
    dialog = asked(page, "Declare an exchange")
    dialog.get_by_label("Name").fill("made.exchange")
    dialog.get_by_label("Type").select_option("direct")
    done(page, dialog, "Declare", "Exchange 'made.exchange' is declared")
    assert answer(api, "exchanges/%2F/made.exchange")["type"] == "direct"
    expect(page.locator(".empty-title")).to_contain_text("Nothing is bound")

    dialog = asked(page, "Bind …")
    dialog.get_by_label("Name of the destination").fill("bound.here")
    dialog.get_by_label("Key").fill("a.key")
    done(page, dialog, "Bind", "is bound to 'bound.here'")
    [binding] = answer(api, "exchanges/%2F/made.exchange/bindings/source")
    assert (binding["destination"], binding["routing_key"]) == ("bound.here", "a.key")

    page.get_by_role("link", name="Bindings").click()
    dialog = asked(page, "Unbind …")
    expect(dialog).to_contain_text("with the key 'a.key' will no longer go to queue 'bound.here'")
    done(page, dialog, "Unbind", "no longer bound")
    expect(page.locator("main .nothing")).to_contain_text("Nothing is bound to it")
    assert answer(api, "exchanges/%2F/made.exchange/bindings/source") == []

    dialog = asked(page, "Delete …")
    expect(dialog).to_contain_text("Its 0 bindings will be removed")
    done(page, dialog, "Delete", "Exchange 'made.exchange' is deleted")
    assert missing(api, "exchanges/%2F/made.exchange")


def test_a_queue_is_bound_from_its_own_view(page: Page, api: Api) -> None:
    assert api.change("PUT", "/api/queues/%2F/bound.there", {"durable": True}) == 201
    page.goto("#/queues/%2F/bound.there?tab=bindings")
    dialog = asked(page, "Bind …")
    dialog.get_by_label("From exchange").fill("amq.topic")
    dialog.get_by_label("Key").fill("#")
    done(page, dialog, "Bind", "is bound to 'bound.there'")
    expect(page.locator("tbody tr").filter(has_text="amq.topic")).to_have_count(1)
    [binding] = answer(api, "bindings/%2F/e/amq.topic/q/bound.there")
    assert binding["routing_key"] == "#"


def test_a_policy_is_added_changed_and_deleted(page: Page, api: Api) -> None:
    assert api.change("PUT", "/api/queues/%2F/policed", {"durable": True}) == 201
    page.goto("#/policies")
    dialog = asked(page, "Add a policy")
    dialog.get_by_label("Name", exact=True).fill("bounded")
    dialog.get_by_label("Pattern of names").fill("^policed$")
    dialog.get_by_label("Sets").fill('{"max-length": 7}')
    done(page, dialog, "Add", "Policy 'bounded' is set")
    assert answer(api, "queues/%2F/policed")["policy"] == "bounded"

    page.get_by_role("link", name="bounded").click()
    expect(page.locator("main")).to_contain_text("in effect for 1")
    dialog = asked(page, "Change …")
    dialog.get_by_label("Sets").fill('{"max-length": 8}')
    done(page, dialog, "Change", "Policy 'bounded' is set")
    assert answer(api, "policies/%2F/bounded")["definition"] == {"max-length": 8}

    done(page, asked(page, "Delete …"), "Delete", "Policy 'bounded' is deleted")
    assert missing(api, "policies/%2F/bounded")
    assert answer(api, "queues/%2F/policed")["policy"] is None


def test_an_operator_policy_is_added(page: Page, api: Api) -> None:
    page.goto("#/policies")
    dialog = asked(page, "Add an operator policy")
    dialog.get_by_label("Name", exact=True).fill("most")
    dialog.get_by_label("Pattern of names").fill("^nothing$")
    dialog.get_by_label("Sets").fill('{"max-length": 9}')
    done(page, dialog, "Add", "Policy 'most' is set")
    assert answer(api, "operator-policies/%2F/most")["definition"] == {"max-length": 9}


def test_a_user_is_added_given_permissions_changed_and_deleted(page: Page, api: Api) -> None:
    page.goto("#/users")
    dialog = asked(page, "Add a user")
    dialog.get_by_label("Name").fill("ada")
    dialog.get_by_label("Password").fill("lovelace")
    dialog.get_by_label("Tags").fill("monitoring")
    done(page, dialog, "Add", "User 'ada' is added")
    assert answer(api, "users/ada")["tags"] in (["monitoring"], "monitoring")

    page.get_by_title("Permissions of ada in /").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("'ada' has no access to this vhost yet")
    dialog.get_by_label("Write (publish)").fill("^orders")
    done(page, dialog, "Set", "Permissions of 'ada' in '/' are set")
    right = answer(api, "permissions/%2F/ada")
    assert (right["configure"], right["write"], right["read"]) == (".*", "^orders", ".*")
    cell = page.get_by_title("Permissions of ada in /")
    expect(cell.get_by_title("write: names that match ^orders")).to_have_count(1)

    cell.click()
    dialog.get_by_label("May enter the vhost").uncheck()
    done(page, dialog, "Set", "'ada' no longer has access to '/'")
    assert missing(api, "permissions/%2F/ada")

    row = page.get_by_role("region", name="Users").locator("tbody tr").filter(has_text="ada")
    before = answer(api, "users/ada")["password_hash"]
    row.get_by_role("button", name="Change …").click()
    dialog.get_by_label("Tags").fill("management, policymaker")
    done(page, dialog, "Change", "User 'ada' is changed")
    changed = answer(api, "users/ada")
    assert changed["password_hash"] == before
    assert "policymaker" in str(changed["tags"])
    row.get_by_role("button", name="Delete …").click()
    done(page, dialog, "Delete", "User 'ada' is deleted")
    assert missing(api, "users/ada")


def test_a_vhost_is_added_limited_opened_to_a_user_and_deleted(page: Page, api: Api) -> None:
    assert api.change("PUT", "/api/users/grace", {"password": "hopper", "tags": ""}) == 201
    page.goto("#/vhosts")
    dialog = asked(page, "Add a vhost")
    dialog.get_by_label("Name").fill("shop")
    dialog.get_by_label("Description").fill("Orders")
    dialog.get_by_label("Tags").fill("live, eu")
    done(page, dialog, "Add", "Vhost 'shop' is added")
    row = answer(api, "vhosts/shop")
    assert (row["description"], row["tags"]) == ("Orders", ["live", "eu"])

    page.get_by_role("link", name="shop").click()
    dialog = asked(page, "Limits …")
    dialog.get_by_label("Connections").fill("7")
    dialog.get_by_label("Queues").fill("9")
    done(page, dialog, "Set", "The limits of vhost 'shop' are set")
    assert answer(api, "vhost-limits/shop")[0]["value"] == {"max-connections": 7, "max-queues": 9}
    expect(page.locator("main")).to_contain_text("queues = 9")
    dialog = asked(page, "Limits …")
    dialog.get_by_label("Queues").fill("")
    done(page, dialog, "Set", "The limits of vhost 'shop' are set")
    assert answer(api, "vhost-limits/shop")[0]["value"] == {"max-connections": 7}

    page.get_by_role("row", name="grace").get_by_role("button", name="Allow …").click()
    done(page, page.get_by_role("dialog"), "Set", "Permissions of 'grace' in 'shop' are set")
    assert answer(api, "permissions/shop/grace")["read"] == ".*"

    dialog = asked(page, "Change …")
    dialog.get_by_label("Protected from deletion").check()
    dialog.get_by_label("Default queue type").select_option("quorum")
    done(page, dialog, "Change", "Vhost 'shop' is changed")
    expect(page.get_by_role("button", name="Delete …")).to_have_count(0)
    assert answer(api, "vhosts/shop")["default_queue_type"] == "quorum"
    dialog = asked(page, "Change …")
    dialog.get_by_label("Protected from deletion").uncheck()
    dialog.get_by_label("Default queue type").select_option("")
    done(page, dialog, "Change", "Vhost 'shop' is changed")
    assert "default_queue_type" not in answer(api, "vhosts/shop")
    done(page, asked(page, "Delete …"), "Delete", "Vhost 'shop' is deleted")
    assert missing(api, "vhosts/shop")
    assert api.change("DELETE", "/api/users/grace") == 204


def test_a_user_is_limited(page: Page, api: Api) -> None:
    assert api.change("PUT", "/api/users/limited", {"password": "x", "tags": ""}) == 201
    rights = {"configure": "^cart", "write": ".*", "read": ""}
    assert api.change("PUT", "/api/permissions/%2F/limited", rights) == 201
    topics = {"exchange": "amq.topic", "write": "^order", "read": ".*"}
    assert api.change("PUT", "/api/topic-permissions/%2F/limited", topics) == 201
    page.goto("#/users")
    page.get_by_role("link", name="limited").click()
    for name, patterns in (
        ("Permissions", ["^cart", "nothing"]),
        ("Topic permissions", ["^order"]),
    ):
        for pattern in patterns:
            expect(page.get_by_role("region", name=name, exact=True)).to_contain_text(pattern)
    dialog = asked(page, "Limits …")
    dialog.get_by_label("Channels").fill("3")
    done(page, dialog, "Set", "The limits of user 'limited' are set")
    assert answer(api, "user-limits/limited")[0]["value"] == {"max-channels": 3}
    expect(page.locator("main")).to_contain_text("channels = 3")
    assert api.change("DELETE", "/api/users/limited") == 204


def test_acked_messages_are_rewound(page: Page, channel: Channel, api: Api) -> None:
    channel.queue_declare("rewound", durable=True, arguments={"x-retain-acked": "1h"})
    for body in (b"one", b"two"):
        channel.publish(body, routing_key="rewound")
        channel.get("rewound", no_ack=True)
    page.goto("#/queues/%2F/rewound")
    dialog = asked(page, "Rewind …")
    expect(dialog).to_contain_text("Of the 2 messages that were acked and are retained")
    done(page, dialog, "Rewind", "2 messages put back into 'rewound'")
    assert answer(api, "queues/%2F/rewound")["messages_ready"] == 2


def test_scheduled_messages_are_cancelled(page: Page, channel: Channel, api: Api) -> None:
    channel.exchange_declare(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "topic"}
    )
    channel.queue_declare("late", durable=True)
    channel.queue_bind("late", "later", "#")
    for key in ("first", "second", "third"):
        properties = BasicProperties(headers={"x-delay": 3_600_000}, delivery_mode=2)
        channel.publish(b"", "later", key, properties)
    page.goto("#/exchanges/%2F/later?tab=delayed")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    rows.filter(has_text="second").get_by_role("button", name="Cancel …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("the key 'second'")
    done(page, dialog, "Cancel it", "The message is cancelled")
    expect(rows).to_have_count(2)
    left = {one["routing_key"] for one in answer(api, "exchanges/%2F/later/delayed")}
    assert left == {"first", "third"}
    done(page, asked(page, "Cancel all …"), "Cancel all", "2 messages cancelled")
    assert answer(api, "exchanges/%2F/later/delayed") == []


def test_a_reader_of_a_stream_is_moved_and_forgotten(
    page: Page, channel: Channel, api: Api
) -> None:
    channel.queue_declare("read", durable=True, arguments={"x-queue-type": "stream"})
    for number in range(5):
        channel.publish(b"%d" % number, routing_key="read")
    where = "streams/%2F/read/consumers"
    assert api.change("PUT", f"/api/{where}/job", {"offset": "next"}) in (201, 204)
    told = "run=1&query_id=q-7&query_name=orders+to+lake&position=2"
    api.answer(f"/api/streams/%2F/read?{told}")
    page.goto("#/queues/%2F/read?tab=stream")
    query = page.get_by_role("row", name="orders to lake")
    expect(query.get_by_role("meter")).to_have_attribute("value", "3")
    dialog = asked(page, "Rewind …")
    dialog.get_by_label("Offset").fill("soon")
    dialog.get_by_role("button", name="Rewind").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The offset must be a number")
    dialog.get_by_label("Offset").fill("2")
    done(page, dialog, "Rewind", "Reader 'job' begins at 2")
    assert answer(api, f"{where}/job")["lag"] == 3
    done(page, asked(page, "Forget …"), "Forget", "Reader 'job' is forgotten")
    assert answer(api, where) == []


def test_all_connections_of_a_user_are_closed(page: Page, broker: BrokerProcess, api: Api) -> None:
    assert api.change("PUT", "/api/users/many", {"password": "many", "tags": ""}) == 201
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    assert api.change("PUT", "/api/permissions/%2F/many", rights) in (201, 204)
    uri = f"amqp://many:many@127.0.0.1:{broker.port}/%2F"
    opened = [
        blocking.connect(uri, connection_name=f"of-many-{number}", recover=False)
        for number in range(3)
    ]
    page.goto("#/connections")
    page.get_by_role("link", name="of-many-1").click()
    dialog = asked(page, "Close all of this user …")
    dialog.get_by_label("Reason").fill("ünsaid")
    dialog.get_by_role("button", name="Close them").click()
    expect(dialog.get_by_role("alert")).to_contain_text("printable ASCII characters")
    dialog.get_by_label("Reason").fill("moving house")
    done(page, dialog, "Close them", "All connections of 'many' are closed")
    for connection in opened:
        with pytest.raises(ConnectionForced, match="moving house"):
            connection.channel()


def test_the_way_back_closes_what_is_asked(page: Page, api: Api) -> None:
    assert api.change("PUT", "/api/queues/%2F/kept", {"durable": True}) == 201
    page.goto("#/queues")
    page.get_by_role("link", name="kept").click()
    dialog = asked(page, "Delete …")
    expect(dialog).to_contain_text("Delete queue 'kept'")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert answer(api, "queues/%2F/kept")["name"] == "kept"


def test_a_key_cannot_turn_the_words_of_a_question(page: Page, channel: Channel) -> None:
    key = "harmless\u202e ton era uoy \u2066"
    channel.queue_declare("turned", durable=True)
    channel.exchange_declare("turning", "direct", durable=True)
    channel.queue_bind("turned", "turning", key)
    page.goto("#/exchanges/%2F/turning?tab=bindings")
    dialog = asked(page, "Unbind …")
    expect(dialog).to_contain_text("'harmless⟨U+202E⟩ ton era uoy ⟨U+2066⟩'")


def test_an_alternate_exchange_of_a_policy_is_drawn_and_followed(
    page: Page, channel: Channel, api: Api
) -> None:
    channel.exchange_declare("main", "direct", durable=True)
    channel.exchange_declare("other", "fanout", durable=True)
    for queue in ("taken", "left.over"):
        channel.queue_declare(queue, durable=True)
    channel.queue_bind("taken", "main", "known")
    channel.queue_bind("left.over", "other")
    policy = {"pattern": "^main$", "apply-to": "exchanges",
              "definition": {"alternate-exchange": "other"}}  # fmt: skip
    assert api.change("PUT", "/api/policies/%2F/alternate", policy) == 201
    page.goto("#/exchanges/%2F/main")
    expect(page.locator(".facts")).to_contain_text("Alternate exchange")
    expect(page.locator(".node.exchange")).to_have_count(2)
    page.get_by_label("Routing key").fill("unknown")
    expect(page.locator(".verdict")).to_contain_text("goes to 1 queue")
    expect(page.locator(".node.queue.lit")).to_contain_text("left.over")
    expect(page.locator(".key.lit").filter(has_text="what none takes")).to_have_count(1)
    page.get_by_label("Routing key").fill("known")
    expect(page.locator(".node.queue.lit")).to_contain_text("taken")
    expect(page.locator(".key.lit").filter(has_text="what none takes")).to_have_count(0)
