"""Copies of the load: as many as were asked for begin, whoever asks, and the test is over when all of them are."""

from __future__ import annotations

from loadtest.copies import Copies


def test_as_many_as_wanted_begin_and_are_numbered_in_order():
    copies = Copies()
    assert [copies.ask(2) for _ in range(4)] == [0, 1, None, None]
    assert [copies.ask(4) for _ in range(3)] == [2, 3, None]
    assert (copies.live, copies.missing(5)) == (4, 1)


def test_one_that_is_over_is_not_begun_again_and_one_that_was_stopped_makes_room():
    copies = Copies()
    first, second = copies.ask(2), copies.ask(2)
    copies.end(first)
    assert copies.ask(2) is None  # Locust misses a user and starts one: that copy has been sent

    copies.stop(second)
    copies.end(second)
    assert copies.missing(1) == 0
    assert copies.ask(2) == 2  # a shape that went down to one and up to two again


def test_a_copy_that_has_ended_cannot_be_stopped():
    copies = Copies()
    number = copies.ask(1)
    copies.end(number)
    copies.stop(number)

    assert copies.ask(1) is None


def test_the_test_is_over_when_all_that_are_wanted_have_begun_and_ended():
    copies = Copies()
    assert not copies.all_over(0)
    first = copies.ask(2)
    copies.end(first)
    assert not copies.all_over(2)  # the second user is still to come
    assert copies.all_over(1)
    second = copies.ask(2)
    assert not copies.all_over(2)
    copies.end(second)
    assert copies.all_over(2)
