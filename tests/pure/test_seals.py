"""What users pass to their guests is encrypted with the first of the region's keys, and decrypted with any."""

import base64
import hashlib
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from moorage.main.config import Config, checked
from moorage.main.region_key import KEYS_MAX, KeyFile, new_key, region_keys_of
from moorage.main.security import Secrets
from moorage.model.errors import Invalid, Unavailable
from moorage.model.guest import GuestSpec, InjectedFile
from moorage.operations.encryption import BEGINS, Encryption, key_id

SCRIPT = "IyEvYmluL3NoCg=="
KEY = base64.urlsafe_b64encode(bytes(32)).decode()


def of(*keys: str, **more: bool) -> Encryption:
    return Encryption(lambda: keys, former="geheim", **more)


def test_every_key_decrypts_and_the_first_encrypts() -> None:
    old, new = new_key(), new_key()
    kept = of(old).user_data(SCRIPT)
    assert kept.startswith(f"{BEGINS}{key_id(old)}:")
    assert SCRIPT not in kept
    both = of(new, old)
    assert both.shown(kept) == both.decrypted(kept) == SCRIPT
    assert both.user_data(SCRIPT).startswith(f"{BEGINS}{key_id(new)}:")
    assert old not in kept


def test_clear_values_are_read_unchanged() -> None:
    seals = of(new_key())
    assert seals.shown(None) is None
    assert seals.shown(SCRIPT) == seals.decrypted(SCRIPT) == SCRIPT
    assert of(new_key(), clear_user_data=True).user_data(SCRIPT) == SCRIPT


def test_without_its_key_a_guest_is_not_made_and_user_data_are_hidden(caplog: pytest.LogCaptureFixture) -> None:
    kept = of(new_key()).user_data(SCRIPT)
    stranger = of(new_key())
    assert stranger.shown(kept) is None
    with pytest.raises(Unavailable) as refused:
        stranger.decrypted(kept)
    assert refused.value.code == "no_key"
    assert kept not in refused.value.private
    assert kept not in caplog.text
    damaged = kept[:-8] + "AAAAAAA="
    assert stranger.shown(damaged) is None


def test_a_host_receives_everything_in_clear() -> None:
    seals = of(new_key())
    files = seals.files([InjectedFile("/etc/motd", SCRIPT)])
    assert SCRIPT not in files[0].contents
    spec = GuestSpec(
        server="s", name="a", vcpus=1, ram_mib=1, root_gib=1, user_data=seals.user_data(SCRIPT), files=files
    )  # type: ignore[arg-type]
    told = seals.guest(spec)
    assert (told.user_data, told.files) == (SCRIPT, (InjectedFile("/etc/motd", SCRIPT),))


def test_passwords_of_an_earlier_journal_are_decrypted() -> None:
    key = base64.urlsafe_b64encode(hashlib.sha256(b"moorage sealed secrets/geheim").digest())
    assert of(new_key()).open(Fernet(key).encrypt(b"very secret").decode()) == "very secret"
    assert Encryption(lambda: [new_key()], former="another").open(Fernet(key).encrypt(b"very secret").decode()) is None


def test_the_file_is_made_once_and_read_again_when_it_changes(tmp_path: Path) -> None:
    config = Config(data_dir=str(tmp_path))
    keys = region_keys_of(config)
    assert isinstance(keys, KeyFile)
    first = keys()
    assert region_keys_of(config)() == first  # type: ignore[operator]
    assert keys.path.stat().st_mode & 0o777 == 0o600
    beside = KeyFile(keys.path)
    beside.write([new_key(), *first])
    assert keys() == beside()
    assert len(keys()) == 2
    for wrong in ("no key\n", f"{new_key()}\n"):
        keys.path.write_text(wrong)
        assert keys() == beside(), "what was there is used on while the file is wrong"


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (None, 0o600, "copy the file from where another process"),
        ("", 0o600, "has 0 keys"),
        ("Zm9v\n", 0o600, "a key that is none"),
        ("x" * 44 + "\n", 0o600, "a key that is none"),
        (f"{KEY}\n" * (KEYS_MAX + 1), 0o600, f"from 1 to {KEYS_MAX}"),
        (f"{KEY}\n", 0o644, "chmod 600"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str | None, mode: int, said: str) -> None:
    path = tmp_path / "keys"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    with pytest.raises(Invalid, match=said) as refused:
        region_keys_of(Config(data_dir=str(tmp_path), secrets=Secrets(key_file="keys")))
    assert "Zm9v" not in refused.value.public


def test_keys_of_the_configuration_itself() -> None:
    key = new_key()
    assert region_keys_of(Config(secrets=Secrets(keys=(key,)))) == (key,)
    with pytest.raises(Invalid, match="a key that is none"):
        region_keys_of(Config(secrets=Secrets(keys=("x",))))
    with pytest.raises(Invalid, match="say one of them"):
        checked(Config(secrets=Secrets(keys=(key,), key_file="a")))
