"""2.57: no more injected files."""

from moorage.api.microversions import VersionChange

INJECTED = ("injected_files", "injected_file_content_bytes", "injected_file_path_bytes")
SETS = {"quota_set": INJECTED}
CLASSES = {"quota_class_set": INJECTED}

CHANGE = VersionChange(
    at=(2, 57),
    summary="Quotas and limits of injected files are gone.",
    refuses_from={"PUT /os-quota-sets/{id}": SETS, "PUT /os-quota-class-sets/{id}": CLASSES},
    retires={
        "GET /limits": {"limits.absolute": ("maxPersonality", "maxPersonalitySize")},
        "GET /os-quota-sets/{id}": SETS,
        "GET /os-quota-sets/{id}/detail": SETS,
        "GET /os-quota-sets/{id}/defaults": SETS,
        "PUT /os-quota-sets/{id}": SETS,
        "GET /os-quota-class-sets/{id}": CLASSES,
        "PUT /os-quota-class-sets/{id}": CLASSES,
    },
)
