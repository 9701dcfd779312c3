"""Public ids: TypeIDs with our kinds in front."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhooks import ids

# From the valid.json of the TypeID specification 0.3.
SPECIFIED = [
    ("00000000-0000-0000-0000-000000000000", "00000000000000000000000000"),
    ("00000000-0000-0000-0000-000000000001", "00000000000000000000000001"),
    ("00000000-0000-0000-0000-00000000000a", "0000000000000000000000000a"),
    ("00000000-0000-0000-0000-000000000010", "0000000000000000000000000g"),
    ("00000000-0000-0000-0000-000000000020", "00000000000000000000000010"),
    ("ffffffff-ffff-ffff-ffff-ffffffffffff", "7zzzzzzzzzzzzzzzzzzzzzzzzz"),
    ("0110c853-1d09-52d8-d73e-1194e95b5f19", "0123456789abcdefghjkmnpqrs"),
    ("01890a5d-ac96-774b-bcce-b302099a8057", "01h455vb4pex5vsknk084sn02q"),
]


@pytest.mark.parametrize(("uuid", "digits"), SPECIFIED)
def test_specified_examples(uuid: str, digits: str) -> None:
    """Both ways, as the specification's own examples say."""
    for kind in (ids.EVENT, ids.DELIVERY, ids.ENDPOINT):
        assert ids.encode(kind, UUID(uuid)) == f"{kind}_{digits}"
        assert ids.decode(kind, f"{kind}_{digits}") == UUID(uuid)


@given(st.uuids(), st.uuids())
def test_ids_sort_as_their_uuids_and_hold_no_dot(one: UUID, other: UUID) -> None:
    """Time order is id order; an event's id is fit to be signed (S5)."""
    first, second = (ids.encode(ids.EVENT, value) for value in (one, other))

    assert (first < second) is (one < other)
    assert ids.decode(ids.EVENT, first) == one
    assert (len(first), first.count(".")) == (30, 0)


@pytest.mark.parametrize(
    "text",
    [
        "", "evt", "evt_", "_", "01h455vb4pex5vsknk084sn02q", "dlv_01h455vb4pex5vsknk084sn02q",
        "EVT_01h455vb4pex5vsknk084sn02q", "evt_01h455vb4pex5vsknk084sn02",
        "evt_8zzzzzzzzzzzzzzzzzzzzzzzzz", "evt_01h455vb4pex5vsknk084sn02qq",
        "evt_01H455VB4PEX5VSKNK084SN02Q", "evt_01h455vb4pex5vsknk084sn0iu",
        "evt_evt_01h455vb4pex5vsknk084sn02q", " evt_01h455vb4pex5vsknk084sn02q",
        "evt-01h455vb4pex5vsknk084sn02q", "evt_01890a5d-ac96-774b-bcce-b302",
        "evt_\u0661" + "0" * 25, "evt_01h455vb4pex5vsknk084sn02q\n",
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_event_id_is_refused(text: str) -> None:
    """Another kind, length, alphabet or case, and more than 128 bits."""
    with pytest.raises(ValueError, match="evt_"):
        ids.decode(ids.EVENT, text)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing but ValueError comes of a hostile id, and its text stays short."""
    for candidate in (text, f"evt_{text}"):
        with pytest.raises(ValueError, match="evt_") as caught:
            ids.decode(ids.EVENT, candidate)
        assert len(str(caught.value)) < 800
