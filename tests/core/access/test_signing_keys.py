"""Signing and published keys after arbitrary rotations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.access import signing_keys
from dragoman.core.access.signing_keys import SigningKey


def key(id: str, signs: int, created: int = 0) -> SigningKey:
    return SigningKey(id=id, algorithm="ES256", seed="", made=created, signs=signs)


steps = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 30), st.booleans()), max_size=8)


@given(steps)
def test_one_key_signs_at_any_time_and_stays_published_for_its_retention(
    rotations: list[tuple[int, int, int, bool]],
) -> None:
    now = 1_000
    keys: tuple[SigningKey, ...] = (key("0", 0),)
    shown_until: dict[str, int] = {}
    for number, (lead, retention, pause, unwanted) in enumerate(rotations, 1):
        before = signing_keys.active_key(keys, now)
        fresh = key(str(number), now + lead, now)
        try:
            keys = signing_keys.rotate_keys(keys, fresh, retention=retention, now=now)
        except ValueError:
            assert any(one.signs > now for one in keys)
        else:
            if unwanted and lead:
                keys = signing_keys.withdraw_key(keys, fresh.id, now)
                assert signing_keys.active_key(keys, now + 1_000) == signing_keys.active_key(keys, now)
                assert signing_keys.active_key(keys, now).id == before.id
            else:
                shown_until[before.id] = fresh.signs + retention
        assert signing_keys.signing_keys_from_json(signing_keys.signing_keys_to_json(keys)) == keys
        for moment in range(now, now + pause + 1):
            current = signing_keys.active_key(keys, moment)
            assert signing_keys.key_state(current, keys, moment) == "signing"
            shown = {one.id for one in signing_keys.published_keys(keys, moment)}
            assert current.id in shown
            assert {id for id, until in shown_until.items() if moment < until} <= shown
        now += pause
