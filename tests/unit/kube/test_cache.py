"""Lists, watch events and answers to writes reach the cache in any order: the newest wins."""

from __future__ import annotations

from muster_operator.kube.cache import Cache

A, B = ("ns", "a"), ("ns", "b")


def cache() -> Cache[str]:
    return Cache(lambda value: value[0])


def test_older_object_does_not_replace_a_newer_one() -> None:
    subject = cache()
    assert subject.put(A, "10", "new")
    assert not subject.put(A, "9", "old")
    assert not subject.put(A, "10", "same")
    assert (subject.get(A), subject.version(A)) == ("new", 10)


def test_versions_are_compared_as_numbers() -> None:
    subject = cache()
    subject.put(A, "9", "nine")
    assert subject.put(A, "10", "ten")


def test_late_answer_does_not_bring_a_deleted_object_back() -> None:
    subject = cache()
    subject.put(A, "5", "x")
    assert subject.remove(A, "8")
    assert not subject.put(A, "7", "late answer")
    assert subject.get(A) is None
    assert subject.put(A, "9", "created anew")


def test_deletion_that_is_older_than_the_object_is_ignored() -> None:
    subject = cache()
    subject.put(A, "9", "created anew")
    assert not subject.remove(A, "8")
    assert subject.get(A) == "created anew"


def test_index_follows_changes_and_removals() -> None:
    subject = cache()
    subject.put(A, "1", "x1")
    subject.put(B, "2", "x2")
    assert list(subject.indexed("x")) == ["x1", "x2"]
    subject.put(A, "3", "y1")
    subject.remove(B, "4")
    assert list(subject.indexed("x")) == []
    assert list(subject.indexed("y")) == ["y1"]


def test_list_drops_what_it_lacks_but_not_what_is_newer() -> None:
    subject = cache()
    subject.put(A, "5", "listed before")
    subject.put(B, "12", "written after the list")
    subject.replace({}, "10")
    assert (subject.get(A), subject.get(B)) == (None, "written after the list")


def test_list_does_not_bring_back_what_was_deleted_after_it() -> None:
    subject = cache()
    subject.put(A, "5", "x")
    subject.remove(A, "11")
    subject.replace({A: ("5", "x")}, "10")
    assert subject.get(A) is None


def test_list_is_right_about_what_is_not_newer_than_it_after_an_older_store_was_restored() -> None:
    """`etcdutl snapshot restore --bump-revision`: the list is newer than all that is known, the objects are older."""
    subject = cache()
    subject.put(A, "15", "what was lost")
    subject.replace({A: ("5", "as in the backup")}, "1015")
    assert (subject.get(A), subject.version(A)) == ("as in the backup", 5)
    assert subject.put(A, "1016", "written since")


def test_list_that_is_older_than_the_last_one_replaces_everything() -> None:
    """The same without `--bump-revision`: versions that were known come again for other contents."""
    subject = cache()
    subject.replace({A: ("15", "what was lost"), B: ("3", "as ever")}, "20")
    subject.put(B, "21", "also lost")
    subject.remove(("ns", "c"), "22")
    subject.replace({A: ("5", "as in the backup"), ("ns", "c"): ("4", "not deleted")}, "10")
    assert (subject.get(A), subject.get(B), subject.get(("ns", "c"))) == ("as in the backup", None, "not deleted")
