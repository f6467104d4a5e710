"""What this host says of addresses that it answers for."""

import struct
from ipaddress import IPv6Address

from moorage.drivers.libvirt.outside_addresses import advertisement


def words_of(data: bytes) -> list[int]:
    return list(struct.unpack(f"!{len(data) // 2}H", data))


def test_an_advertisement_is_whole() -> None:
    own = bytes.fromhex("020000000001")
    frame = advertisement(own, "2001:db8::2")
    assert frame[:14] == bytes.fromhex("333300000001") + own + b"\x86\xdd"
    head, body = frame[14:54], frame[54:]
    length, following, hops = struct.unpack("!HBB", head[4:8])
    assert (length, following, hops) == (len(body), 58, 255)
    assert [IPv6Address(each).compressed for each in (head[8:24], head[24:40])] == ["2001:db8::2", "ff02::1"]
    assert body[0] == 136
    assert body[4:8] == bytes.fromhex("20000000"), "it overrides, and it is no router"
    assert IPv6Address(body[8:24]).compressed == "2001:db8::2"
    assert body[24:] == b"\x02\x01" + own
    total = sum(words_of(head[8:] + struct.pack("!II", len(body), 58) + body))
    assert total % 0xFFFF == 0, "its checksum"
