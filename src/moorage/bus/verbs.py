"""The verbs of commands to hosts."""

from enum import StrEnum


class Verb(StrEnum):
    """A command's verb.  The set is open: an agent answers an unknown verb with `not_supported`."""

    START_GUEST = "start_guest"
    DESTROY_GUEST = "destroy_guest"
    POWER_ON = "power_on"
    POWER_OFF = "power_off"
    REBOOT = "reboot"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    SUSPEND = "suspend"
    RESUME = "resume"
    ATTACH_INTERFACE = "attach_interface"
    DETACH_INTERFACE = "detach_interface"
    ATTACH_VOLUME = "attach_volume"
    DETACH_VOLUME = "detach_volume"
    CONSOLE_OUTPUT = "console_output"
    SET_ADMIN_PASSWORD = "set_admin_password"
    CRASH_DUMP = "crash_dump"
    DIAGNOSTICS = "diagnostics"
    CACHE_IMAGE = "cache_image"
    REBUILD_GUEST = "rebuild_guest"
    RESCUE_GUEST = "rescue_guest"
    UNRESCUE_GUEST = "unrescue_guest"
    TAKE_SNAPSHOT = "take_snapshot"
    UPLOAD_SNAPSHOT = "upload_snapshot"
    DROP_SNAPSHOT = "drop_snapshot"
    VOLUME_CONNECTOR = "volume_connector"
    SWAP_VOLUME = "swap_volume"
    EXTEND_VOLUME = "extend_volume"
    GET_CONSOLE = "get_console"
    TAKE_VOLUME_SNAPSHOT = "take_volume_snapshot"
    DROP_VOLUME_SNAPSHOT = "drop_volume_snapshot"
    FREEZE_GUEST = "freeze_guest"
    THAW_GUEST = "thaw_guest"
    GUEST_POWER = "guest_power"
    GUEST_DEVICES = "guest_devices"
    MOVE_TARGET = "move_target"
    SEND_GUEST = "send_guest"
    TAKE_GUEST = "take_guest"
    RETURN_GUEST = "return_guest"
    FORGET_LEFT = "forget_left"
    LIVE_SOURCE = "live_source"
    LIVE_TARGET = "live_target"
    LIVE_STATUS = "live_status"
    PREPARE_LIVE = "prepare_live"
    SEND_LIVE = "send_live"
    ABORT_LIVE = "abort_live"
    FORCE_LIVE = "force_live"
    DROP_LIVE = "drop_live"
    LAND_LIVE = "land_live"
    SERVER_TURN = "server_turn"


READS = frozenset(
    {
        Verb.CONSOLE_OUTPUT,
        Verb.GET_CONSOLE,
        Verb.SET_ADMIN_PASSWORD,
        Verb.DIAGNOSTICS,
        Verb.CACHE_IMAGE,
        Verb.VOLUME_CONNECTOR,
        Verb.GUEST_POWER,
        Verb.GUEST_DEVICES,
        Verb.MOVE_TARGET,
        Verb.LIVE_SOURCE,
        Verb.LIVE_TARGET,
        Verb.LIVE_STATUS,
        Verb.FREEZE_GUEST,
        Verb.THAW_GUEST,
        Verb.SERVER_TURN,
    }
)
"""Verbs that change nothing that is recorded: they have no turn, and are not written to the host's journal, which must not contain
passwords.  They are questions (`subjects.ask_host`); every other verb is an order, and comes from conductors only."""
OF_CONSOLES = frozenset({Verb.GET_CONSOLE})
"""What a console proxy asks hosts."""
OF_APIS = frozenset(
    {
        Verb.CONSOLE_OUTPUT,
        Verb.GET_CONSOLE,
        Verb.SET_ADMIN_PASSWORD,
        Verb.DIAGNOSTICS,
        Verb.CACHE_IMAGE,
        Verb.VOLUME_CONNECTOR,
        Verb.GUEST_POWER,
        Verb.MOVE_TARGET,
        Verb.SERVER_TURN,
    }
)
"""What an API process asks hosts while it answers a request."""
