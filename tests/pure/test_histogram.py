"""The histogram: bucket edges to the nanosecond, the error bound, sums that are exact."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.histogram import LogHistogram

times_ns = st.integers(0, 10**13)
many_times_ns = st.lists(times_ns, max_size=60)


def of(values_ns):
    histogram = LogHistogram()
    for value_ns in values_ns:
        histogram.record_ns(value_ns)
    return histogram


def upper_ns(value_ns):
    """Upper edge of the bucket that ``value_ns`` falls into."""
    ((upper_s, count),) = of([value_ns]).buckets()
    assert count == 1
    return round(upper_s * 1e9)


@given(st.lists(st.integers(-5, 10**13) | st.integers(0, 300), max_size=60))
def test_many_values_at_once_are_what_they_are_one_by_one(values_ns):
    histogram = of(values_ns[:3])
    histogram.record_all_ns(values_ns[3:])

    assert histogram.to_json() == of(values_ns).to_json()


# --- buckets ---


@pytest.mark.parametrize(
    ("first_ns", "last_ns"),
    [
        (0, 0),
        (1, 1),
        (127, 127),
        (128, 129),
        (130, 131),
        (254, 255),
        (256, 259),
        (508, 511),
        (512, 519),
        (2**20, 2**20 + 2**14 - 1),
        (2**30 - 2**23, 2**30 - 1),
        (2**30, 2**30 + 2**24 - 1),
    ],
)
def test_a_bucket_holds_exactly_the_values_between_its_edges(first_ns, last_ns):
    assert upper_ns(first_ns) == upper_ns(last_ns) == last_ns
    assert upper_ns(last_ns + 1) > last_ns
    if first_ns:
        assert upper_ns(first_ns - 1) == first_ns - 1


def test_values_up_to_127_ns_have_a_bucket_each_and_each_power_of_two_above_has_64():
    assert len(list(of(range(128)).buckets())) == 128
    for power in range(7, 12):
        assert len(list(of(range(2**power, 2 ** (power + 1))).buckets())) == 64


@given(times_ns)
def test_the_upper_edge_is_at_most_one_64th_above_the_value(value_ns):
    assert value_ns <= upper_ns(value_ns) <= value_ns * (1 + 1 / 64)


@given(times_ns, times_ns)
def test_a_greater_value_never_falls_into_a_lower_bucket(a_ns, b_ns):
    low, high = sorted([a_ns, b_ns])
    assert upper_ns(low) <= upper_ns(high)


@given(many_times_ns)
def test_buckets_ascend_and_count_all_values_at_or_below_their_edge(values_ns):
    buckets = list(of(values_ns).buckets())
    assert buckets == sorted(set(buckets))
    assert [count for _, count in buckets] == [
        sum(value_ns <= round(upper_s * 1e9) for value_ns in values_ns) for upper_s, _ in buckets
    ]
    assert not values_ns or buckets[-1][1] == len(values_ns)


# --- sums ---


@given(many_times_ns)
def test_count_sum_and_maximum_are_exact(values_ns):
    histogram = of(values_ns)
    assert (histogram.count, histogram.sum_ns) == (len(values_ns), sum(values_ns))
    assert histogram.max_ns == max(values_ns, default=0)
    assert histogram.mean_s() == (sum(values_ns) / len(values_ns) / 1e9 if values_ns else None)


def test_one_value_many_times_is_as_recorded_one_by_one():
    once = LogHistogram()
    once.record_ns(5_000_000, 1000)
    assert once.to_json() == of([5_000_000] * 1000).to_json()


def test_a_negative_time_counts_as_zero():
    histogram = of([-1, -(10**12), 5])
    assert histogram.to_json() == of([0, 0, 5]).to_json()


@given(many_times_ns, many_times_ns)
def test_a_merge_is_as_if_all_had_been_recorded_in_one(a, b):
    merged, other = of(a), of(b)
    merged.merge(other)
    assert merged.to_json() == of(a + b).to_json()
    assert other.to_json() == of(b).to_json()


def test_a_histogram_merged_with_itself_counts_twice():
    histogram = of([1, 1000])
    histogram.merge(histogram)
    assert histogram.to_json() == of([1, 1000, 1, 1000]).to_json()


@given(many_times_ns)
def test_it_reads_back_equal_from_json_text(values_ns):
    histogram = of(values_ns)
    back = LogHistogram.from_json(json.loads(json.dumps(histogram.to_json())))
    assert back.to_json() == histogram.to_json()
    assert list(back.buckets()) == list(histogram.buckets())
    back.record_ns(7)
    assert back.to_json() == of([*values_ns, 7]).to_json()


def test_the_json_is_stable():
    histogram = LogHistogram()
    histogram.record_ns(1000, 3)
    histogram.record_ns(2)
    # 1000 = 0b1111101000: shift 3, so bucket (3 << 6) + 125.
    assert histogram.to_json() == {"count": 4, "sum_ns": 3002, "max_ns": 1000, "counts": {"2": 1, "317": 3}}


# --- quantiles ---


def test_an_empty_histogram_has_no_quantile_and_no_mean():
    empty = LogHistogram()
    assert (empty.quantile_s(0.5), empty.mean_s(), list(empty.buckets())) == (None, None, [])
    assert empty.to_json() == {"count": 0, "sum_ns": 0, "max_ns": 0, "counts": {}}


@pytest.mark.parametrize(
    ("q", "expected_ns"),
    [
        (0.0, 1),
        (0.005, 1),
        (0.01, 1),
        (0.011, 2),
        (0.5, 50),
        (0.501, 51),
        (0.95, 95),
        (0.99, 99),
        (0.991, 100),
        (1, 100),
    ],
)
def test_quantiles_of_one_to_a_hundred(q, expected_ns):
    assert of(range(1, 101)).quantile_s(q) == expected_ns / 1e9


@pytest.mark.parametrize("q", [0.0, 0.5, 0.99, 1.0])
def test_every_quantile_of_one_value_is_that_value(q):
    assert of([1_234_567]).quantile_s(q) == 1_234_567 / 1e9


def test_a_quantile_is_read_from_the_sum_not_averaged():
    merged = of([1_000] * 99)
    merged.merge(of([1_000_000_000]))
    assert merged.quantile_s(0.99) == pytest.approx(1e-6, rel=1 / 64)
    assert merged.quantile_s(0.999) == 1.0


@given(st.lists(times_ns, min_size=1, max_size=60), st.sampled_from([0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0]))
def test_a_quantile_is_the_ranked_value_to_within_one_64th(values_ns, q):
    exact_s = sorted(values_ns)[max(1, math.ceil(q * len(values_ns))) - 1] / 1e9
    got_s = of(values_ns).quantile_s(q)
    assert exact_s <= got_s <= exact_s * (1 + 1 / 64) * (1 + 1e-12)
    assert got_s <= max(values_ns) / 1e9


def test_what_was_recorded_since_is_the_difference():
    histogram = LogHistogram()
    histogram.record_ns(5_000_000, 3)
    histogram.record_ns(900_000_000)
    earlier = LogHistogram.from_json(histogram.to_json())
    histogram.record_ns(2_000_000, 2)
    histogram.record_ns(5_000_000)
    grown = histogram.since(earlier)

    assert (grown.count, grown.sum_ns) == (3, 9_000_000)
    assert grown.quantile_s(0.5) == pytest.approx(0.002, rel=0.016)
    assert grown.quantile_s(1.0) == pytest.approx(0.005, rel=0.016)
    assert histogram.since(histogram).to_json() == LogHistogram().to_json()
