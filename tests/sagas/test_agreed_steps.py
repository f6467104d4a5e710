"""The steps of every saga, in their order, as they were agreed."""

from moorage.operations.registry import SAGAS

AGREED_STEPS = {
    "boot/1": "make_ports claim_host bind_ports record_server start_guest await_vifs announce",
    "delete/1": "find_server destroy_guest release_ports mark_deleted release_claims",
    "boot/2": (
        "hold_volumes make_ports claim_host bind_ports connect_volumes record_server start_guest await_vifs announce"
    ),
    "boot/3": "make_ports claim_host bind_ports record_server start_guest await_vifs announce",
    "boot/4": (
        "hold_volumes make_ports claim_host bind_ports connect_volumes record_server start_guest await_vifs announce"
    ),
    "delete/2": (
        "find_server destroy_guest release_ports release_volumes mark_deleted release_claims finish_volumes "
        "delete_shelved_image"
    ),
    "attach_volume/1": "reserve begin_action connect plug record_volume",
    "extend_volume/1": "begin_action tell_host tell_volume_service record_size",
    "assisted_snapshot/1": "find_server tell_host tell_volume_service",
    "settle_debt/1": "find_server pay_at_host release_thing end_debt",
    "detach_volume/1": "begin_action begin_detaching unplug let_volume_go forget_volume",
    "swap_volume/1": (
        "reserve begin_action begin_detaching connect swap let_old_volume_go complete_migration record_swapped"
    ),
    "attach_interface/1": "begin_action make_port claim_more bind_port plug record_nic",
    "attach_interface/2": "begin_action make_port claim_more bind_port plug record_nic",
    "detach_interface/1": "begin_action unplug let_port_go forget_nic give_back",
    "repair_devices/1": "compare change_guest record_devices",
    "power/1": "begin_action tell_host record_power",
    "rebuild/1": "begin_action read_ports hold_root write_root connect_volumes rebuild_guest record_rebuilt",
    "rescue/1": "begin_action rescue_guest record_rescued",
    "unrescue/1": "begin_unrescue unrescue_guest record_unrescued",
    "soft_delete/1": "find_server switch_off mark_soft_deleted release_quota",
    "restore/1": "begin_restore charge_quota switch_on record_restored",
    "resize/1": (
        "begin_action check_source read_ports claim_host prepare_host bind_destination record_destination "
        "send_guest switch_volumes activate_bindings land_guest start_guest await_vifs record_resized"
    ),
    "live_migrate/1": (
        "begin_action read_ports check_source claim_host check_destination bind_destination "
        "record_destination export_volumes prepare_guest await_vifs switch_guest activate_bindings "
        "complete_volumes land_guest record_moved clear_source drop_source_volumes drop_source_bindings "
        "release_source record_completed"
    ),
    "confirm_resize/1": "begin_confirm clear_source drop_source_bindings release_source record_confirmed",
    "evacuate/1": (
        "begin_action fence_source read_ports claim_host bind_ports connect_volumes record_destination "
        "prove_fenced start_guest await_vifs record_evacuated"
    ),
    "resize/2": (
        "begin_action check_source read_ports check_neighbours claim_host prepare_host open_cell "
        "bind_destination reserve_volumes record_destination hold_image stop_guest take_snapshot upload_image "
        "send_guest switch_volumes activate_bindings land_guest start_guest await_vifs begin_copy seal_record "
        "copy_record show_there record_resized delete_image"
    ),
    "move_record/1": "open_cell begin_copy seal_record copy_record show_there remove_record forget_hidden",
    "unshelve/3": (
        "begin_action check_image read_ports check_cells claim_host open_cell bind_ports connect_volumes "
        "record_host start_guest await_vifs begin_copy seal_record copy_record show_there announce_here "
        "leave_addresses release_addresses delete_image remove_record forget_hidden"
    ),
    "live_migrate/2": (
        "begin_action read_ports check_source check_cells claim_host open_cell check_destination "
        "bind_destination record_destination export_volumes prepare_guest await_vifs switch_guest "
        "activate_bindings complete_volumes land_guest begin_copy seal_record copy_record show_there "
        "record_moved clear_source drop_source_volumes drop_source_bindings release_source remove_record "
        "forget_hidden record_completed"
    ),
    "evacuate/3": (
        "begin_action fence_source read_ports check_cells claim_host open_cell bind_ports connect_volumes "
        "record_destination prove_fenced start_guest await_vifs begin_copy seal_record copy_record show_there "
        "record_left leave_addresses release_addresses"
    ),
    "evacuate/2": (
        "begin_action fence_source read_ports claim_host bind_ports connect_volumes record_destination "
        "prove_fenced start_guest await_vifs record_evacuated leave_addresses release_addresses"
    ),
    "revert_resize/1": (
        "begin_revert check_source read_ports stop_destination clear_destination take_claim_back "
        "return_volumes return_ports start_source record_reverted drop_destination_bindings"
    ),
    "delete/3": (
        "find_server destroy_guest confirm_move end_move release_move release_ports release_volumes "
        "mark_deleted release_claims finish_volumes delete_shelved_image"
    ),
    "delete/5": (
        "find_server destroy_guest confirm_move end_move release_ports release_volumes release_all_claims "
        "mark_deleted finish_volumes delete_shelved_image remove_record forget_hidden"
    ),
    "confirm_resize/2": (
        "begin_confirm clear_source drop_source_bindings release_source record_confirmed remove_record forget_hidden"
    ),
    "revert_resize/2": (
        "begin_revert check_source open_cell read_ports stop_destination clear_destination take_claim_back "
        "return_volumes return_ports start_source seal_record copy_record show_there drop_bindings_there "
        "remove_record forget_hidden"
    ),
    "delete/4": (
        "find_server destroy_guest confirm_move end_move release_ports release_volumes release_all_claims "
        "mark_deleted finish_volumes delete_shelved_image"
    ),
    "crash_dump/1": "begin_action interrupt_guest end_action",
    "shelve/1": (
        "hold_image begin_action stop_guest show_copying take_snapshot show_uploading upload_image "
        "record_shelved clear_host keep_volumes take_ports_off give_back_host record_offloaded"
    ),
    "shelve_offload/1": "begin_offload check_image destroy_guest reserve_volumes unbind_ports release_host end_offload",
    "unshelve/1": (
        "begin_action check_image read_ports claim_host bind_ports connect_volumes record_host start_guest "
        "await_vifs announce delete_image"
    ),
    "unshelve/2": (
        "begin_action check_image read_ports claim_host bind_ports connect_volumes record_host start_guest "
        "await_vifs announce leave_addresses release_addresses delete_image"
    ),
    "unshelve_in_place/1": "begin_in_place power_on record_active drop_image",
    "snapshot_volumes/1": "hold_image begin_action show_taking await_snapshots write_image record_image",
    "snapshot_volumes/2": "hold_image begin_action show_taking await_snapshots thaw_guest write_image record_image",
    "snapshot/1": (
        "hold_image begin_action show_taking take_snapshot show_uploading upload_image record_snapshot rotate_backups"
    ),
}


def test_every_saga_has_its_agreed_steps() -> None:
    """The order of the steps is a wire format: journals of operations under way name them (RULES §19)."""
    assert {name: " ".join(step.name for step in saga.steps) for name, saga in SAGAS.items()} == AGREED_STEPS
