"""What the metadata service knows its proxies by."""

from moorage.main.config import Config
from moorage.main.secret_settings import secret


def shared_secret(config: Config) -> str:
    """What Neutron's proxy signs with: the configured one, or one made once and kept in the data directory."""
    return config.metadata.shared_secret or secret(config.data, "metadata-secret")
