"""A trial host's libvirt daemon: what is refused before it is started."""

from pathlib import Path

import pytest

from moorage.main.local_cluster.libvirt_daemon import SOCKET_BYTES_MAX, Daemon


def test_a_socket_path_that_is_too_long_is_refused_with_its_length(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / ("d" * SOCKET_BYTES_MAX), 1, "127.0.0.2")
    with pytest.raises(
        RuntimeError, match=f"{len(str(daemon.socket))} bytes, and 107 are the most: choose a directory"
    ):
        daemon.start()
    assert not daemon.base.exists()
    assert daemon.process is None
