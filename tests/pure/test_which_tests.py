"""Which tests a source file has, and which source files a test has."""

from pathlib import Path

import pytest

from moorage_testing.which_tests import find_tests

ROOT = Path(__file__).parents[2]


def test_the_nearest_tests_of_a_file_are_those_that_import_it() -> None:
    assert "tests/sagas/test_port_drift.py" in find_tests(ROOT, ROOT / "src/moorage/operations/interfaces/port_sync.py")


def test_a_file_that_no_test_imports_is_tested_through_its_importers_and_by_name() -> None:
    found = find_tests(ROOT, ROOT / "src/moorage/api/compute/flavors.py")
    assert found[0] == "tests/api/test_flavors.py"
    assert "tests/api/test_access_matrix.py" in found


def test_a_test_names_its_source_files() -> None:
    assert "packages/testing/moorage_testing/which_tests.py" in find_tests(ROOT, Path(__file__))


def test_a_test_lists_its_namesake_and_the_imports_of_its_helpers() -> None:
    found = find_tests(ROOT, ROOT / "tests/cloud/test_resize.py")
    assert "src/moorage/operations/resize/resize.py" in found[:3]
    assert find_tests(ROOT, ROOT / "tests/cloud/test_limits.py"), "through what it imports of other tests"


def test_a_file_outside_the_packages_is_refused() -> None:
    with pytest.raises(LookupError):
        find_tests(ROOT, ROOT / "README.md")
