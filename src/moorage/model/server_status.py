"""The one word `status` of the API, from the two states of a server (Nova's table), and back."""

from moorage.model.server import STAGES, TaskState, VmState

_REBUILDING: dict[TaskState | None, str] = dict.fromkeys(
    (TaskState.REBUILDING, *sorted(STAGES[TaskState.REBUILDING])), "REBUILD"
)
_RESIZING: dict[TaskState | None, str] = dict.fromkeys(
    (TaskState.RESIZE_PREP, *sorted(STAGES[TaskState.RESIZE_PREP])), "RESIZE"
)
_STATUS: dict[VmState, dict[TaskState | None, str]] = {
    VmState.ACTIVE: {
        None: "ACTIVE",
        TaskState.REBOOTING: "REBOOT",
        TaskState.REBOOTING_HARD: "HARD_REBOOT",
        TaskState.MIGRATING: "MIGRATING",
        **_REBUILDING,
        **_RESIZING,
    },
    VmState.BUILDING: {None: "BUILD"},
    VmState.STOPPED: {None: "SHUTOFF", **_REBUILDING, **_RESIZING},
    VmState.PAUSED: {None: "PAUSED", TaskState.MIGRATING: "MIGRATING"},
    VmState.SUSPENDED: {None: "SUSPENDED"},
    VmState.RESCUED: {None: "RESCUE"},
    VmState.RESIZED: {None: "VERIFY_RESIZE", TaskState.RESIZE_REVERTING: "REVERT_RESIZE"},
    VmState.SHELVED: {None: "SHELVED"},
    VmState.SHELVED_OFFLOADED: {None: "SHELVED_OFFLOADED"},
    VmState.SOFT_DELETED: {None: "SOFT_DELETED"},
    VmState.DELETED: {None: "DELETED"},
    VmState.ERROR: {None: "ERROR", **_REBUILDING},
}


def status_of(vm_state: VmState, task_state: TaskState | None) -> str:
    """The one word `status` of the API, from the two states (Nova's table)."""
    by_task = _STATUS[vm_state]
    return by_task.get(task_state, by_task[None])


def states_of(status: str) -> tuple[tuple[VmState, ...], tuple[TaskState, ...] | None]:
    """The vm_states, and where it matters the task_states, that a `status` filter stands for; empty when unknown."""
    wanted = status.upper()
    vm_states: list[VmState] = []
    task_states: list[TaskState] = []
    for vm_state, by_task in _STATUS.items():
        for task_state, word in by_task.items():
            if word == wanted:
                vm_states.append(vm_state)
                if task_state is not None:
                    task_states.append(task_state)
    return tuple(dict.fromkeys(vm_states)), tuple(task_states) or None
