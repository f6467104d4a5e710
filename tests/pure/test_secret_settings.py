"""Passwords may come from files and the environment; a configuration that contains one must be readable by its owner only."""

import os
from pathlib import Path

import pytest

from moorage.main.config import read_config
from moorage.main.private_data_dir import keep_private
from moorage.main.secret_settings import secret
from moorage.model.errors import Invalid
from moorage.model.private_files import may_be_read_by_others, private_database, private_directory
from moorage_testing.private_files import open_to_others


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('admin_password = "geheim"\n', "admin_password"),
        ('[service_user]\npassword = "geheim"\n', "service_user.password"),
        ('[metadata]\nshared_secret = "geheim"\n', "metadata.shared_secret"),
        ('[region]\ndatabase = "postgresql://moorage:geheim@db/region"\n', "region.database"),
        ('[[cells]]\nname = "a"\ndatabase = "postgresql://moorage:geheim@db/a"\n', "cells.database"),
        ('[placement]\ndatabase = "postgresql://m:geheim@db/p"\n', "placement.database"),
        ('[bus]\nurl = "nats://one:4222,nats://moorage:geheim@two:4222"\n', "bus.url"),
        ('[notifications]\ntransport_url = "rabbit://m:geheim@broker/"\n', "notifications.transport_url"),
    ],
)
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_password_in_a_file_readable_by_others_is_refused(tmp_path: Path, text: str, named: str, mode: int) -> None:
    file = written(tmp_path / "moorage.toml", text, mode)
    with pytest.raises(Invalid, match=f"{named} stands in it: chmod 600") as refused:
        read_config(file)
    assert "geheim" not in refused.value.public
    file.chmod(0o600)
    read_config(file)


def test_a_configuration_without_a_password_may_be_public(tmp_path: Path) -> None:
    text = (
        'admin_password = ""\n[region]\ndatabase = "postgresql://moorage@db/region"\n[bus]\nurl = "nats://one:4222"\n'
    )
    assert read_config(written(tmp_path / "moorage.toml", text, 0o644)).region.database.endswith("@db/region")


def test_a_file_of_roots_may_be_lent_to_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has files of root's")
    file = written(tmp_path / "secret", "x", 0o640)
    assert may_be_read_by_others(file)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert not may_be_read_by_others(file)
    for mode in (0o660, 0o644):
        file.chmod(mode)
        assert may_be_read_by_others(file)


def test_secrets_come_from_files_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "database", "postgresql://moorage:geheim@db/region\n")
    monkeypatch.setenv("MOORAGE_TEST_PASSWORD", "of the environment")
    file = written(
        tmp_path / "moorage.toml",
        'cells = [{name = "a", database = {file = "database"}}]\n[region]\ndatabase = { file = "database" }\n'
        '[service_user]\npassword = { env = "MOORAGE_TEST_PASSWORD" }\n',
        0o644,
    )
    config = read_config(file)
    assert config.region.database == config.cells[0].database == "postgresql://moorage:geheim@db/region"
    assert config.service_user.password == "of the environment"
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    written(credentials / "database", "postgresql://other")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    assert read_config(file).region.database == "postgresql://other"


@pytest.mark.parametrize(
    ("said", "content", "mode", "sentence"),
    [
        ('{ env = "MOORAGE_TEST_UNSET" }', None, 0, "where MOORAGE_TEST_UNSET is not set"),
        ('{ file = "secret" }', None, 0, "cannot be read: No such file or directory"),
        ('{ file = "secret" }', b"geheim", 0o644, "chmod 600"),
        ('{ file = "secret" }', b"\n", 0o600, "has nothing in it"),
        ('{ file = "secret" }', b"g" * 65_537, 0o600, "more than 65536 bytes"),
        ('{ file = "secret" }', b"\xff\xfe", 0o600, "is no text"),
        ('{ file = "secret", more = 1 }', b"x", 0o600, "Expected `str`, got `object`"),
        ("{ file = 1 }", b"x", 0o600, "Expected `str`, got `object`"),
    ],
)
def test_a_missing_secret_is_reported(
    tmp_path: Path, said: str, content: bytes | None, mode: int, sentence: str
) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
        (tmp_path / "secret").chmod(mode)
    file = written(tmp_path / "moorage.toml", f"[service_user]\npassword = {said}\n")
    with pytest.raises(Invalid, match=sentence) as refused:
        read_config(file)
    assert "geheim" not in refused.value.public
    assert "service_user" in refused.value.public


def test_a_data_directory_of_an_earlier_release_is_closed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    data.chmod(0o755)
    for end in ("", "-wal", "-shm"):
        written(data / f"region.db{end}", "", 0o644)
    keep_private(data)
    private_database(data / "region.db")
    assert open_to_others(data) == []
    data.chmod(0o1777)
    with pytest.raises(Invalid, match="everybody may write to"):
        keep_private(data)


def test_a_directory_is_made_private_with_those_above_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    private_directory(tmp_path / "one" / "two")
    assert open_to_others(tmp_path / "one") == []
    assert tmp_path.stat().st_mode & 0o777 == 0o755, "what was there is its owner's business"


def test_a_secret_is_created_once_and_completely(tmp_path: Path) -> None:
    first = secret(tmp_path, "token-key")
    assert first
    assert secret(tmp_path, "token-key") == first
    assert [path.name for path in (tmp_path / "secrets").iterdir()] == ["token-key"]
    assert open_to_others(tmp_path / "secrets") == []
