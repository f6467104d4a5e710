"""`[metadata]` and `[console]` of the configuration: the data that guests get, and consoles in a browser."""

import msgspec


class VendorTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A service that gives vendor data to guests."""

    name: str
    """Its key in `vendor_data2.json`."""
    url: str
    ca_file: str = ""
    """PEM file of the CA of its certificate; empty: those that this machine trusts."""


class MetadataConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data that guests get about themselves: config drives, and the metadata service (`[api.metadata]` is its address)."""

    force_config_drive: bool = False
    """Every new server has a config drive, asked or not."""
    dhcp_domain: str = "novalocal"
    """Domain that is added to host names without one; empty: nothing is added."""
    vendor_data_file: str = ""
    """File with a JSON object that every guest gets (`vendor_data.json`)."""
    vendor_data_targets: tuple[VendorTarget, ...] = ()
    """Services that are asked about each guest (`vendor_data2.json`), at most 16."""
    vendor_data_timeout_s: float = 5.0
    """How long each may take."""
    vendor_data_failure_fatal: bool = False
    """Whether a guest waits for a service that fails; if not, it goes without."""
    shared_secret: str = ""
    """Neutron's `metadata_proxy_shared_secret`; empty: made once and kept in the data directory (`secrets/metadata-secret`)."""
    kept_s: float = 15.0
    """How old an answer may be; 0: the record is read for each (Nova's `metadata_cache_expiration`)."""
    trusted_proxies: tuple[str, ...] = ()
    """Flat networks: addresses of proxies whose `X-Forwarded-For` is believed."""


class Console(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Consoles in a browser, and their proxy (`[api.console]` is its address)."""

    novnc_url: str = ""
    """Public URL of noVNC's page; empty: our own, `/vnc_lite.html` of the proxy."""
    serial_url: str = ""
    """`ws://…` or `wss://…`; empty: our own."""
    spice_html5_url: str = ""
    """URL of another proxy; empty: SPICE consoles are unavailable. The next two settings work in the same way."""
    spice_direct_url: str = ""
    mks_url: str = ""
    token_life_s: float = 600.0
    """How long a token is valid."""
    single_use: bool = True
    """A token is valid for one connection; false: for any number of connections until it expires, as in Nova."""
    enforce_session_timeout: bool = False
    """A console is closed when its token expires."""
    allowed_origins: tuple[str, ...] = ()
    """Host names of pages that may open consoles, beside the proxy's own."""
    connections_max: int = 1_000
    """Consoles that one proxy carries at once."""
    connections_of_a_server_max: int = 8
    novnc_directory: str = ""
    """Directory of the npm package `@novnc/novnc` or of a complete noVNC; empty: a page explains how to install it."""
    certificate: str = ""
    """PEM file: the proxy serves with TLS. Older name of `cert` in `[api.console]`, and of `key` there."""
    key: str = ""
