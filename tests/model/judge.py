"""What is judged of a channel when a step ends: its confirms and its delivery tags."""

from __future__ import annotations

from model.channel import Channel
from model.claims import Claims
from model.heard import Difference


def judge_confirms(claims: Claims, channel: Channel) -> None:
    """Each publish is confirmed once, in its kind, after its sync and its return."""
    at = channel.at
    for event in claims.heard.confirms(at):
        got = event.claim()
        kind, tag = got.name.removeprefix("basic."), got.delivery_tag
        numbers = [one for one in channel.confirms if one == tag or (got.multiple and one < tag)]
        if tag not in numbers:
            raise Difference(f"{at}: a confirm of {tag}, which waits for none")
        for number in numbers:
            confirm = channel.confirms.pop(number)
            claims.saw(f"{kind} of a publish")
            if confirm.kind != kind or confirm.state in ("recorded", "sealed"):
                raise Difference(f"{at}: {kind} of {number}, which is {confirm}")
            if confirm.after > event.place:
                raise Difference(f"{at}: {kind} of {number} before its return")
    if due := channel.due():
        raise Difference(f"{at}: not confirmed: {due} of {channel.confirms}")
    for confirm in channel.confirms.values():
        confirm.after = 0


def judge_tags(claims: Claims, channel: Channel) -> None:
    """Delivery tags count on."""
    at = channel.at
    for event in claims.heard.streams.get(at, []):
        got = event.method
        if got.name in ("basic.deliver", "basic.get-ok"):
            channel.last_tag += 1
            if got.delivery_tag != channel.last_tag:
                raise Difference(f"{at}: delivery tag {channel.last_tag} is {got.delivery_tag}")
